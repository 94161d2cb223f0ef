"""Renders a run of the matrix as the page docs/interop.md."""

from pathlib import Path

from sessions.mcp.core.versions import Era
from tests.interop.cells import GREEN, GREEN_ANEW, Matrix, Row
from tests.interop.roster import KINDS
from tests.interop.verbs import NOT_DECLARED, NOT_IN_REVISION, NOT_OFFERED, NOT_SERVED, Verb

PAGE = Path(__file__).resolve().parents[2] / "docs" / "interop.md"
SIGNS = {GREEN: "✓", GREEN_ANEW: "✓¹", NOT_DECLARED: "·", NOT_IN_REVISION: "–", NOT_SERVED: "○"}
RED = "✗"

HEAD = """\
# Interoperability

mcpadmin's MCP client against real servers, over every transport each server offers and in every revision it speaks.
A test run writes this page (`python -m tests.interop.write`), and a test compares the page with its own results.

The servers define what is tested: their capabilities, the tools they list, and the agreed revision. The protocol has no
declaration for a tool that reports progress or requests sampling or elicitation; there, the tool in the server's list is
the declaration. A cell is *owed* if the server declares the feature. Every owed cell must work, or the test fails.

| sign | meaning |
|---|---|
| ✓ | works, and its effect was verified |
| ✓¹ | works; the server ended its session because of it (Python SDK 1.9 and older), and a new session worked |
| · | not declared by the server |
| – | not in this revision |
| ○ | declared, but the server does not do it |

The columns: *connect* in this revision; *list* everything declared; *call* a tool; receive the *progress* of a call;
*cancel* a running call and continue; *read* a resource; expand a *template* (RFC 6570) and read it; *subscribe* to a
resource and receive its change; get a *prompt*; *complete* an argument; *sample*: answer a sampling request; *elicit*:
answer an elicitation request; receive the server's *log*.

Servers that need keys (`server-github`, `server-brave-search`, `server-google-maps`, `server-slack`) run with a dummy key
and without network access. Their *call* is green if they answer it with an error of their own.

## Bridges

`supergateway`, `mcp-proxy` and `mcp-remote` convert one transport to another. Each runs in front of the test server of the
Python SDK 1.x, in the newest revision they agree on. `slow start` writes to stderr for seconds before that server starts.

- supergateway prefixes request ids on a WebSocket with the client's number, also in responses, but not inside
  cancellations. Neither reaches its request at the server, so server requests and cancellations do not work there.
- mcp-proxy does not forward cancellations, log messages or server requests, nor progress over Streamable HTTP.
- mcp-grafana, written in Go, declares logging but has no tool that logs.

## Limitations of old servers

- Python SDK 1.8 without sessions crashes on the probe, a method that it does not know. Set *Protocol era* to *Legacy* for
  such a server. Everywhere else detection alone found the newest revision of each transport.
- Python SDK 1.2 and 1.8 over stdio never answer the probe and exit when `initialize` follows after 5 s: the first
  connection starts a second process.
- Python SDK 1.9 and older: a cancelled call ends the session, and over Streamable HTTP the whole server until someone
  restarts it. The call itself has ended by then, and a new session works.
- Python SDK 1.8 and 1.9 with anyio 4.10 or newer: ending one session (`DELETE`) ends the whole server. The test
  environments use the anyio version of their time.
- Any legacy server over HTTP without sessions: a cancellation is a separate message that cannot reach its call. The call
  ends in mcpadmin and may continue on the server.
"""


def page(matrix: Matrix) -> str:
    return "\n".join([HEAD, *_totals(matrix), "", *_transports(matrix), "", *_cells(matrix), ""])


def lines_about(server: tuple[str, str], text: str) -> list[str]:
    """The lines of a page about one server version: its line under Transports and its table under Cells."""
    spoken = [line for line in text.splitlines() if line.startswith(f"| {server[0]} | {server[1]} | ")]
    _, heading, rest = text.partition(f"### {server[0]} {server[1]}\n")
    return [*spoken, *(heading + rest.partition("### ")[0]).strip().splitlines()]


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
    """One row per server, one column per face: the revisions supported there."""
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
