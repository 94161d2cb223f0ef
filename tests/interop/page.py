"""Writes a run of the matrix as the page docs/interop.md."""

from pathlib import Path

from sessions.protocol.versions import Era
from tests.interop.cells import GREEN, GREEN_ANEW, Matrix, Row
from tests.interop.roster import KINDS
from tests.interop.verbs import NOT_DECLARED, NOT_IN_REVISION, NOT_OFFERED, Verb

PAGE = Path(__file__).resolve().parents[2] / "docs" / "interop.md"
SIGNS = {GREEN: "✓", GREEN_ANEW: "✓¹", NOT_DECLARED: "·", NOT_IN_REVISION: "–"}
RED = "✗"

HEAD = """\
# Interoperability

Our client against real servers: each over every transport that it offers and in every revision that it speaks.
Written by a run of the tests (`python -m tests.interop.write`); a test compares this page with what it sees.

The servers themselves say what they owe: by their capabilities, by the tools that they list, by the revision agreed
on. Nothing in the protocol declares that a tool reports progress or asks the model or the person: there the tool in
the server's list is the declaration. A cell that is owed works, or the test fails.

| sign | meaning |
|---|---|
| ✓ | done, and the effect seen |
| ✓¹ | done; the server ended its session over it (SDK for Python 1.9 and older), and a new one worked |
| · | not declared by the server |
| – | not in this revision |

What the columns stand for: *connect* and agree on this revision; *list* everything declared; *call* a tool; hear the
*progress* of a call; *cancel* a call that runs and go on; *read* a resource; expand a *template* (RFC 6570) and read
it; *subscribe* to a resource and be told of its change; get a *prompt*; *complete* an argument; *sample*: answer a
server that asks the model; *elicit*: answer one that asks the person; hear its *log*.

Servers with keys (`server-github`, `server-brave-search`, `server-google-maps`, `server-slack`) run with a dummy key
and without a network: their *call* is green when it is answered, with an error of theirs.

## What old servers cannot take

- Python SDK 1.8 without sessions ends at the probe, a method that it does not know. Such a server needs the setting
  *Era: legacy*. Everywhere else the newest revision of each transport was found by detection alone.
- Python SDK 1.2 and 1.8 over stdio never answer the probe: the first connection waits for it in vain, then starts a
  new process.
- Python SDK 1.9 and older: a cancelled call ends the session, over Streamable HTTP the whole server until somebody
  starts it again. The call itself has ended by then, and a new session works.
- Python SDK 1.8 and 1.9 with anyio 4.10 or newer: the end of one session (`DELETE`) ends the whole server. The
  environments of the tests have the anyio of their time.
- Any legacy server over HTTP without sessions: a cancellation is a message of its own, which cannot find the call that
  it means. The call ends here and may run on there.
"""


def page(matrix: Matrix) -> str:
    return "\n".join([HEAD, *_totals(matrix), "", *_transports(matrix), "", *_cells(matrix), ""])


def _totals(matrix: Matrix) -> list[str]:
    era_lines = [f"- Verbs shown in the {era} era: {len(matrix.shown(era))} of {len(Verb)}." for era in Era]
    return [
        "## Totals",
        "",
        f"{len(matrix.servers)} server versions, {len(matrix.transports)} transports, {len(matrix.revisions)} "
        f"revisions, {len(matrix.rows)} connections. **Cells owed: {matrix.owed}; green: {matrix.green}.**",
        "",
        *era_lines,
    ]


def _transports(matrix: Matrix) -> list[str]:
    """Server by face: the revisions spoken there."""
    lines = ["## Transports", "", f"| server | version | {' | '.join(KINDS)} |", f"|---|---|{'---|' * len(KINDS)}"]
    for server in matrix.servers:
        cells = [_spoken(matrix.of(server), face) for face in KINDS]
        lines.append(f"| {server[0]} | {server[1]} | {' | '.join(cells)} |")
    return lines


def _spoken(rows: list[Row], face: str) -> str:
    revisions = sorted(row.revision for row in rows if row.face == face)
    return "<br>".join(revisions) or NOT_OFFERED


def _cells(matrix: Matrix) -> list[str]:
    lines = ["## Cells", ""]
    for server in matrix.servers:
        lines += [
            f"### {server[0]} {server[1]}",
            "",
            f"| transport | revision | {' | '.join(Verb)} |",
            f"|---|---|{'---|' * len(Verb)}",
            *(_line(row) for row in matrix.of(server)),
            "",
        ]
    return lines[:-1]


def _line(row: Row) -> str:
    signs = [SIGNS.get(row.cells.get(verb, ""), RED) for verb in Verb]
    return f"| {row.face} | {row.revision} | {' | '.join(signs)} |"
