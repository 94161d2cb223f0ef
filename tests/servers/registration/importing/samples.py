"""Configurations in the shapes that READMEs and client documents print, each with its expected reading.

A file contains several samples: a line `### title`, the text as a person would paste it, and a line `=>` for each
server, with its name, transport, command line or URL, values, and the inputs it needs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from servers.registration.importing.applying import Choice, choices
from servers.registration.importing.document import ImportedDocument
from servers.registration.importing.entries import parse
from servers.registration.importing.planning import Plan, Proposal

FOLDER = Path(__file__).parent / "samples"


@dataclass(frozen=True)
class Sample:
    file: str
    title: str
    text: str
    expected: tuple[str, ...]


def samples() -> Iterator[Sample]:
    for path in sorted(FOLDER.glob("*.txt")):
        for part in path.read_text(encoding="utf-8").split("### ")[1:]:
            title, _, rest = part.partition("\n")
            lines = rest.splitlines()
            expected = [line for line in lines if line.startswith("=> ")]
            text = "\n".join(line for line in lines if not line.startswith("=> "))
            yield Sample(path.stem, title, text, tuple(expected))


def reading(document: ImportedDocument) -> tuple[str, ...]:
    return tuple(_line(document, name, raw) for name, raw in document.servers)


def _line(document: ImportedDocument, name: str, raw: object) -> str:
    entry = parse(document, name, raw)
    if entry.registration is None or entry.problems:
        return f"=> {name} | refused | {' '.join(entry.problems)}"
    found = entry.registration
    where = found.url or " ".join([found.command, *found.arguments])
    values = [
        f"{value.name}={'needed' if value.needed else 'sealed' if value.secret else value.text()}"
        for value in found.used_values()
    ]
    skipped = choices(Proposal(0, entry, Plan.CREATE))[0] == Choice.SKIP
    asked = [need.key for need in entry.needs]
    said = ["" if entry.enabled else "disabled", "skipped unless chosen" if skipped else ""]
    parts = [name, str(found.transport), where, ", ".join(values), f"asks: {'; '.join(asked)}" if asked else "", *said]
    return "=> " + " | ".join(part.replace("\n", "⏎") for part in parts if part)
