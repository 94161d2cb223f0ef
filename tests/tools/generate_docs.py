"""Writes the generated parts of the documents anew, from the code that they describe.

A part stands between `<!-- generated: name -->` and `<!-- end of name -->`. tests/test_docs_generated.py compares.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from sessions.domain import rpc_codes  # noqa: E402  the path to the project is set above
from sessions.protocol import limits, offered, state, tasks, versions  # noqa: E402  as above
from sessions.transports import registry  # noqa: E402  as above

PAGES = (
    "docs/protocol.md",
    "docs/error-codes.md",
    "docs/articles-and-specification.md",
    "sessions/protocol/README.md",
)

#: What each member of versions.Revision says, in the order of the table. A member without words stops the run.
FEATURES = {
    "batches": "a JSON array of messages may arrive",
    "version_header": "header `MCP-Protocol-Version` on HTTP",
    "completions_declared": "completion is a declared capability",
    "completion_context": "completion is told the other arguments",
    "elicitation": "elicitation by a form",
    "elicitation_url": "elicitation by a URL to visit",
    "sampling_tools": "sampling with tools",
    "core_tasks": "tasks, asked for by the client",
    "extensions": "extensions, among them tasks that the server decides on",
}


#: kind of a transport -> what it is, in the order of the table. A transport without words stops the run.
TRANSPORTS = {
    "stdio": "a child process: one JSON message on each line of stdin and stdout",
    "streamable_http": "Streamable HTTP (2025-03-26 and later): a POST for each message, answered by JSON or an event stream",
    "http_sse": "HTTP+SSE (2024-11-05): a GET whose event stream carries all answers, a POST for each message",
    "websocket": "WebSocket with subprotocol `mcp`: no revision defines it, the SDKs agree on it",
}


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [tuple(head), *(tuple(str(cell) for cell in row) for row in rows)]
    lines.insert(1, ("---",) * len(lines[0]))
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def revisions() -> str:
    names = [member.name for member in fields(versions.Revision) if member.name not in ("name", "era")]
    if set(names) != set(FEATURES):
        raise SystemExit(f"members of Revision and words for them differ: {set(names) ^ set(FEATURES)}")
    known = list(reversed(versions.REVISIONS.values()))
    rows: list[list[object]] = [["era", *(revision.era for revision in known)]]
    rows += [[words, *("yes" if getattr(one, name) else "–" for one in known)] for name, words in FEATURES.items()]
    return table(["", *(revision.name for revision in known)], rows)


def diagram(era: versions.Era) -> str:
    """One arrow for each pair of states, with all triggers that lead there."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, trigger), after in state.TABLES[era].items():
        arrows.setdefault((before, after), []).append(trigger)
    lines = [f"    {before} --> {after}: {', '.join(triggers)}" for (before, after), triggers in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {state.State.DISCONNECTED}", *lines, "```"])


def transports() -> str:
    classes = {one.kind: one for one in registry.Transport.__subclasses__()}
    if set(classes) != set(TRANSPORTS):
        raise SystemExit(f"transports and words for them differ: {set(classes) ^ set(TRANSPORTS)}")
    rows = [
        (
            f"`{kind}`",
            words,
            "each request has a reply of its own" if classes[kind].exchange else "one stream both ways",
            "legacy" if classes[kind].legacy_only else "both",
        )
        for kind, words in TRANSPORTS.items()
    ]
    return table(["kind", "what it is", "shape", "eras"], rows)


def bounds() -> str:
    """Limits with their defaults; the words are the comments above the fields."""
    source = Path(limits.__file__).read_text()
    lines = source.splitlines()
    rows: list[list[str]] = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name, words = node.target.id, comment_above(lines, node.lineno)
        value = amount(getattr(limits.Limits(), name))
        if words:
            rows.append([f"`{name}`", value, words])
        else:
            rows[-1][0] += f"<br>`{name}`"
            rows[-1][1] += f"<br>{value}"
    return table(["limit", "default", "what it bounds (and the fault that names it)"], rows)


def comment_above(lines: list[str], number: int) -> str:
    words: list[str] = []
    for line in reversed(lines[: number - 1]):
        text = line.strip()
        if not text.startswith("#:"):
            break
        words.insert(0, text.removeprefix("#:").strip())
    return " ".join(words)


def amount(value: Any) -> str:
    for size, unit in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if isinstance(value, int) and value % size == 0 and value >= size * 4:
            return f"{value // size:,} {unit}"
    return f"{value:,}"


def offers() -> str:
    rows = [
        (f"`{capability}`", feature and f"`{feature}`", words) for (capability, feature), words in offered.WORDS.items()
    ]
    return table(["capability", "feature", "without it, never asked for"], rows)


def task_states() -> str:
    rows = [(f"`{one}`", *(step_words(one, era) for era in versions.Era)) for one in tasks.Status]
    return table(["state of a task", "2025-11-25", "extension of 2026-07-28"], rows)


def step_words(status: tasks.Status, era: versions.Era) -> str:
    """What `tasks.next_step` does about a state that is complete."""
    inside = {"result": {}, "error": {"code": 0}, "inputRequests": {"key": {}}}
    step = tasks.next_step(tasks.state_of({"taskId": "t", "status": status, **inside}, era), era)
    if isinstance(step, tasks.Wait):
        return "answer what it asks, look again" if step.inputs else "look again later"
    if isinstance(step, tasks.Fetch):
        return "fetch the result" if status in tasks.TERMINAL else "fetch the result early, answer on its stream"
    return "take the result inside" if isinstance(step, tasks.Finished) else "the call ends with an error"


def defined_codes() -> str:
    rows = [
        (code.code, code.name, span(code), f"[{code.source.words}]({code.source.url})") for code in rpc_codes.DEFINED
    ]
    return table(["code", "name", "revisions", "source"], rows)


def span(code: rpc_codes.Defined) -> str:
    if not code.since and not code.until:
        return "all"
    if code.since == code.until:
        return code.since
    return f"{code.since} and later" if code.since else f"{code.until} and earlier"


def common_codes() -> str:
    rows = [
        (common.code, ", ".join(f"[{use.words}]({use.url})" for use in common.uses), rpc_codes.name_of(common.code))
        for common in rpc_codes.COMMON
    ]
    return table(["code", "seen to mean", "shown (where no revision defines it) as"], rows)


def modules(ring: str) -> str:
    """Each module with the first sentence of its own docstring."""
    folder = ROOT / "sessions" / ring
    paths = [path for path in sorted(folder.rglob("*.py")) if path.name != "__init__.py"]
    return table(["module", "what it is for"], [(f"`{path.relative_to(folder)}`", about(path)) for path in paths])


def about(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text()))
    if not text:
        raise SystemExit(f"{path} does not say what it is for")
    return " ".join(text.split("\n\n")[0].split()).rstrip(".")


PARTS: dict[str, Callable[[], str]] = {
    "revisions": revisions,
    "states of a legacy session": lambda: diagram(versions.Era.LEGACY),
    "states of a modern session": lambda: diagram(versions.Era.MODERN),
    "transports": transports,
    "limits": bounds,
    "offers": offers,
    "task states": task_states,
    "modules of protocol": lambda: modules("protocol"),
    "modules of transports": lambda: modules("transports"),
    "modules of client": lambda: modules("client"),
    "error codes": defined_codes,
    "common codes": common_codes,
}


def written(text: str) -> str:
    """A page with all its parts written anew. KeyError for a part that nothing makes."""

    def part(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- generated: {name} -->\n{PARTS[name]()}\n<!-- end of {name} -->"

    return re.sub(r"<!-- generated: (.+?) -->\n.*?<!-- end of \1 -->", part, text, flags=re.DOTALL)


def main() -> None:
    for name in PAGES:
        path = ROOT / name
        before = path.read_text()
        after = written(before)
        if after != before:
            path.write_text(after)
            print(f"written anew: {name}")


if __name__ == "__main__":
    main()
