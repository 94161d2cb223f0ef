"""The result of a matrix run: rows of cells, and their totals."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sessions.mcp.core.versions import REVISIONS, Era
from tests.interop.verbs import NOT_DECLARED, NOT_IN_REVISION, NOT_SERVED, Verb

GREEN = "green"
#: the verb worked, but the server ended its session over it, and the next session worked
GREEN_ANEW = "green, in a new session"
GREENS = (GREEN, GREEN_ANEW)
EMPTY = (NOT_DECLARED, NOT_IN_REVISION, NOT_SERVED)


@dataclass
class Row:
    """One connection. A cell contains one of GREENS, a reason from EMPTY, or the failure."""

    title: str
    version: str
    face: str
    revision: str
    transport: str = ""
    cells: dict[Verb, str] = field(default_factory=dict)

    @property
    def owed(self) -> list[Verb]:
        return [verb for verb, cell in self.cells.items() if cell not in EMPTY]

    @property
    def green(self) -> list[Verb]:
        return [verb for verb, cell in self.cells.items() if cell in GREENS]

    @property
    def red(self) -> dict[Verb, str]:
        return {verb: self.cells[verb] for verb in self.owed if self.cells[verb] not in GREENS}

    @property
    def era(self) -> Era | None:
        return REVISIONS[self.revision].era if self.revision in REVISIONS else None


@dataclass
class Matrix:
    rows: list[Row]

    @property
    def owed(self) -> int:
        return sum(len(row.owed) for row in self.rows)

    @property
    def green(self) -> int:
        return sum(len(row.green) for row in self.rows)

    @property
    def reds(self) -> list[str]:
        return [
            f"{row.title} {row.version}, {row.face}, {row.revision}: {verb}: {words}"
            for row in self.rows
            for verb, words in row.red.items()
        ]

    @property
    def servers(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((row.title, row.version) for row in self.rows))

    @property
    def transports(self) -> set[str]:
        return {row.transport for row in self.rows if row.green}

    @property
    def revisions(self) -> set[str]:
        return {row.revision for row in self.rows if row.green}

    def shown(self, era: Era) -> set[Verb]:
        """The verbs with a green cell in this era."""
        return {verb for row in self.rows if row.era is era for verb in row.green}

    def of(self, server: tuple[str, str]) -> list[Row]:
        return [row for row in self.rows if (row.title, row.version) == server]


def summary(matrix: Matrix) -> list[str]:
    """The printed summary of a run."""
    lines = [
        f"Interop: {len(matrix.servers)} server versions, {len(matrix.transports)} transports, "
        f"{len(matrix.revisions)} revisions, {len(matrix.rows)} connections.",
        f"Cells owed: {matrix.owed}. Cells green: {matrix.green}.",
    ]
    lines += [f"  {verb.value}: {_by_era(matrix, verb)}" for verb in Verb]
    return lines + [f"RED {words}" for words in matrix.reds]


def _by_era(matrix: Matrix, verb: Verb) -> str:
    counts: dict[Era | None, int] = defaultdict(int)
    for row in _rows_green(matrix.rows, verb):
        counts[row.era] += 1
    return ", ".join(f"{counts[era]} {era}" for era in Era)


def _rows_green(rows: Iterable[Row], verb: Verb) -> list[Row]:
    return [row for row in rows if row.cells.get(verb) in GREENS]
