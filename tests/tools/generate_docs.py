"""Rewrites the generated parts of the documents from the code that they describe.

Each part sits between `<!-- generated: name -->` and `<!-- end of name -->`. tests/test_docs_generated.py compares
them.
"""

import ast
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")  # the defaults, whatever this shell exports

from mcpadmin import variables  # noqa: E402  the path to the project is set above
from servers import limits as product_limits  # noqa: E402  as above
from servers.validators import LIMITS as SERVER_LIMITS  # noqa: E402  as above
from sessions.calls import rpc_codes  # noqa: E402  the path to the project is set above
from sessions.mcp.core import limits, offered, state, tasks, versions  # noqa: E402  as above
from sessions.mcp.transports import registry  # noqa: E402  as above
from tests import settings  # noqa: E402  as above

PAGES = (
    "docs/architecture.md",
    "docs/configuration.md",
    "docs/protocol.md",
    "docs/error-codes.md",
    "docs/articles-and-specification.md",
    "sessions/mcp/README.md",
)

#: The text for each member of versions.Revision, in the order of the table. A member without text stops the run.
FEATURES = {
    "batches": "batches: a JSON array of messages",
    "version_header": "header `MCP-Protocol-Version` on HTTP",
    "completions_declared": "completion is a declared capability",
    "completion_context": "completion requests include the other arguments",
    "elicitation": "form elicitation",
    "elicitation_url": "URL elicitation",
    "sampling_tools": "sampling with tools",
    "core_tasks": "tasks, requested by the client",
    "resumes": "clients resume a response whose stream ended early",
    "extensions": "extensions, including tasks started by the server",
}


#: kind of a transport -> its description, in the order of the table. A transport without one stops the run.
TRANSPORTS = {
    "stdio": "a child process: one JSON message per line of stdin and stdout",
    "streamable_http": "Streamable HTTP (2025-03-26 and later): one POST per message, answered with JSON or an event stream",
    "http_sse": "HTTP+SSE (2024-11-05): one GET whose event stream carries all responses, one POST per message",
    "websocket": "WebSocket with subprotocol `mcp`: a convention of the SDKs that no revision defines",
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
    """One arrow for each pair of states, with all triggers that cause the transition."""
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
            "one reply per request" if classes[kind].exchange else "one bidirectional stream",
            "legacy" if classes[kind].legacy_only else "both",
        )
        for kind, words in TRANSPORTS.items()
    ]
    return table(["kind", "what it is", "shape", "eras"], rows)


def bounds() -> str:
    """Limits with their defaults. The descriptions are the comments above the fields."""
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


def settings_of(section: str) -> str:
    """The variables of one section, with their default; of limits also their bounds."""
    bounds = {f"MCPADMIN_LIMIT_{name.upper()}": (one.least, one.most) for name, one in SERVER_LIMITS.items()}
    rows = [
        (f"`{one.name}`", default_of(one), *bounds.get(one.name, ()), f"{one.about} {one.see}".strip())
        for one in variables.VARIABLES[section]
    ]
    return table(["variable", "default", *(("at least", "at most") if len(rows[0]) == 5 else ()), "meaning"], rows)


def default_of(variable: variables.Variable) -> str:
    if variable.default:
        return variable.default
    default = settings.VARIABLES_READ[variable.name].default
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, list):
        default = ",".join(default)
    text = f"{default:.15g}" if isinstance(default, float) else str("" if default is None else default)
    return f"`{text}`" if text else "none"


def refusals() -> str:
    """The limits whose refusal a user sees."""
    rows = [
        (one.area, f"{one.in_words()} {one.about}", f"`{one.variable}`" if one.variable else "fixed", who_changes(one))
        for one in product_limits.LIMITS.values()
    ]
    return table(["what", "default", "setting", "who may change it"], rows)


def who_changes(limit: product_limits.ProductLimit) -> str:
    if limit.of_server:
        return "operators; for one server, users who may change it (Settings, Limits)"
    return "operators" if limit.variable else "nobody"


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
    return table(["capability", "feature", "without it, mcpadmin never requests"], rows)


def task_states() -> str:
    rows = [(f"`{one}`", *(step_words(one, era) for era in versions.Era)) for one in tasks.Status]
    return table(["state of a task", "2025-11-25", "extension of 2026-07-28"], rows)


def step_words(status: tasks.Status, era: versions.Era) -> str:
    """Describe what `tasks.next_step` does with a task in this state."""
    inside = {"result": {}, "error": {"code": 0}, "inputRequests": {"key": {}}}
    step = tasks.next_step(tasks.state_of({"taskId": "t", "status": status, **inside}, era), era)
    if isinstance(step, tasks.Wait):
        return "answer its requests, then poll again" if step.inputs else "poll again later"
    if isinstance(step, tasks.Fetch):
        return "fetch the result" if status in tasks.TERMINAL else "fetch the result early, answer on its stream"
    return "take the result from the state" if isinstance(step, tasks.Finished) else "the call ends with an error"


def defined_codes() -> str:
    rows = [
        (code.code, code.name, span(code), f"[{code.source.words}]({code.source.url})") for code in rpc_codes.DEFINED
    ]
    return table(["code", "name", "revisions", "source"], rows)


def span(code: rpc_codes.ErrorCode) -> str:
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
    return table(["code", "observed meanings", "shown (where no revision defines it) as"], rows)


def modules(package: str) -> str:
    """Each module with the first paragraph of its docstring."""
    folder = ROOT / package
    paths = [path for path in sorted(folder.rglob("*.py")) if path.name != "__init__.py"]
    return table(["module", "what it is for"], [(f"`{path.relative_to(folder)}`", about(path)) for path in paths])


def rooms(app: str) -> str:
    """Each package of an app, and each module beside them, with the first paragraph of its docstring."""
    ignored = ("migrations", "management")
    folders = [path.parent for path in (ROOT / app).rglob("__init__.py") if path.parent != ROOT / app]
    kept = [one for one in folders if not set(one.parts) & set(ignored) and one.parent.name in (app, "host", "mcp")]
    modules = [one for one in (ROOT / app).glob("*.py") if one.name not in ("__init__.py", "apps.py", "routing.py")]
    return table(
        ["folder", "what is there"],
        [(f"`{one.relative_to(ROOT)}/`", about(one / "__init__.py")) for one in sorted(kept)]
        + [(f"`{one.relative_to(ROOT)}`", about(one)) for one in sorted(modules)],
    )


def layers() -> str:
    """The import contracts of type `layers`: which layer may import which."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    lines = [
        f"# {', '.join(one.get('containers', [])) or 'the project'}\n" + "\n".join(one["layers"])
        for one in contracts
        if one["type"] == "layers"
    ]
    return "```\n" + "\n\n".join(lines) + "\n```"


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
    "refusals": refusals,
    **{f"variables, {section}": partial(settings_of, section) for section in variables.VARIABLES},
    "offers": offers,
    "task states": task_states,
    "rooms of servers": lambda: rooms("servers"),
    "rooms of sessions": lambda: rooms("sessions"),
    "layers": layers,
    "modules of core": lambda: modules("sessions/mcp/core"),
    "modules of transports": lambda: modules("sessions/mcp/transports"),
    "modules of client": lambda: modules("sessions/mcp/client"),
    "error codes": defined_codes,
    "common codes": common_codes,
}


def written(text: str) -> str:
    """The page with all its parts regenerated. Raises KeyError for an unknown part."""

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
