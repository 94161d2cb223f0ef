"""Every hostile scene in one table: which row of the threat model it plays, over which transports, and what must come
of it. The peers play by these names; the tests read the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

STDIO, JSON, STREAM, HTTP_SSE, WEBSOCKET = "stdio", "json", "stream", "http_sse", "websocket"
#: json and stream are the two kinds of reply of Streamable HTTP
EVERY: Final = (STDIO, JSON, STREAM, HTTP_SSE, WEBSOCKET)
#: a reply can be more than one message
MANY: Final = (STDIO, STREAM, HTTP_SSE, WEBSOCKET)
#: one connection carries every answer
DUPLEX: Final = (STDIO, HTTP_SSE, WEBSOCKET)
EXCHANGE: Final = (JSON, STREAM)
#: the modern era exists here
BOTH_ERAS: Final = (STDIO, JSON, STREAM, WEBSOCKET)

ROWS: Final = tuple(f"O{number}" for number in range(1, 14))


@dataclass(frozen=True)
class Scene:
    """`fault`: of the call or list (or `limited_by` of the list); empty: the call is answered, with the text "right" unless
    `text` says otherwise. `ends`: transports on which the session is over or stuck afterwards. `others`: transports on
    which the fault is another one. `short`: the call ends by its deadline. `big`: bytes without measure, so that
    memory is measured as well."""

    row: str
    name: str
    over: tuple[str, ...]
    fault: str = ""
    ends: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    text: str = "right"
    lists: bool = False
    short: bool = False
    big: bool = False


def _call(row: str, name: str, over: tuple[str, ...], fault: str = "", **more: object) -> Scene:
    return Scene(row, name, over, fault, **more)  # type: ignore[arg-type]  # the fields' own types are checked there


def _list(row: str, name: str, limited_by: str, **more: object) -> Scene:
    return _call(row, name, (STDIO, JSON, HTTP_SSE, WEBSOCKET), limited_by, lists=True, **more)


SCENES: Final = (
    _call("O1", "giant-message", EVERY, "message_limit", ends=(HTTP_SSE, WEBSOCKET), big=True),
    _call("O1", "giant-anonymous", EVERY, "message_limit", ends=(HTTP_SSE, WEBSOCKET), big=True),
    _call("O1", "many-values", EVERY, "value_limit", big=True),
    _call("O1", "giant-batch", EVERY, "value_limit", ends=DUPLEX),
    _call("O1", "endless-line", (STDIO,), "line_limit", ends=(STDIO,), big=True),
    _call("O1", "endless-message", (STDIO,), "message_limit", ends=(STDIO,), big=True),
    _call("O1", "giant-print", (STDIO,), "line_limit", ends=(STDIO,), big=True),
    _call("O1", "endless-body", (JSON,), "message_limit", big=True),
    _call("O1", "endless-fragments", (WEBSOCKET,), "message_limit", ends=(WEBSOCKET,), big=True),
    _call("O1", "giant-frame-head", (WEBSOCKET,), "message_limit", ends=(WEBSOCKET,), big=True),
    _call("O2", "bomb", (JSON,), "inflated_limit", big=True),
    _call("O2", "small-bomb", (JSON,), "inflated_limit", big=True),
    _call("O2", "stream-bomb", (JSON,), "inflated_limit", big=True),
    _call("O2", "other-encoding", (JSON,), "not_mcp"),
    _call("O2", "ws-bomb", (WEBSOCKET,), "invalid_message", ends=(WEBSOCKET,)),
    _call("O3", "comments", (JSON, HTTP_SSE), "stream_limit", ends=(HTTP_SSE,), big=True),
    _call("O3", "empty-events", (JSON, HTTP_SSE), "stream_limit", ends=(HTTP_SSE,), big=True),
    _call("O3", "giant-event", (JSON, HTTP_SSE), "message_limit", ends=(HTTP_SSE,), big=True),
    _call("O3", "many-data-lines", (JSON, HTTP_SSE), "message_limit", ends=(HTTP_SSE,), big=True),
    _call("O3", "slow-comments", (JSON, HTTP_SSE), "timeout", short=True),
    _call("O4", "silence", EVERY[:2] + EVERY[3:], "timeout", short=True),
    _call("O4", "one-byte-at-a-time", (STDIO, JSON), "timeout", ends=(STDIO,), short=True),
    _call("O4", "head-byte-at-a-time", (JSON,), "timeout", short=True),
    _call("O4", "half-a-message", (STDIO,), "timeout", ends=(STDIO,), short=True),
    _call("O4", "endless-interim", (JSON,), "timeout", short=True),
    _call("O4", "endless-chunk-head", (JSON,), "timeout", short=True, big=True),
    _call("O4", "stderr-flood", (STDIO,), "timeout", short=True, big=True),
    _call("O4", "ws-pings", (WEBSOCKET,), "timeout", short=True),
    _call("O4", "endless-progress", MANY, "total_deadline", short=True),
    _call("O5", "many-headers", (JSON,), "header_limit"),
    _call("O5", "wide-header", (JSON,), "header_limit"),
    _call("O5", "endless-header", (JSON,), "header_limit", big=True),
    _call("O5", "endless-status", (JSON,), "header_limit", big=True),
    _call("O5", "endless-trailer", (JSON,), "connection_lost", big=True),
    _call("O6", "deep", EVERY, "depth_limit"),
    _call("O6", "long-number", EVERY, "invalid_message"),
    _call("O6", "not-a-number", EVERY, "invalid_message"),
    _call("O6", "duplicate-keys", EVERY, "invalid_message"),
    _call("O6", "wrong-types", EVERY, "invalid_message"),
    # An event stream is UTF-8 with replacement (HTML, section 9.2): there the answer is read with U+FFFD.
    _call("O6", "not-utf8", (STDIO, JSON, WEBSOCKET), "invalid_message", ends=(WEBSOCKET,)),
    _call("O6", "not-utf8", (STREAM, HTTP_SSE), text='{"a": "\\ufffd\\ufffd"}'),
    _call("O6", "half-a-pair", EVERY, text="right\ufffd"),
    _call("O6", "nul", EVERY, text="right\0"),
    _call("O6", "byte-order-mark", EVERY),
    _list("O7", "endless-pages", "page_limit"),
    _list("O7", "circling-cursor", "cursor_repeated"),
    _list("O7", "many-tools", "list_limit"),
    _list("O7", "fat-tools", "list_limit", big=True),
    _list("O7", "fat-cursor", "list_limit", big=True),
    _call("O7", "giant-list", (STDIO, JSON), "message_limit", lists=True, big=True),
    _list("O7", "list-of-values", "value_limit", big=True),
    _list("O7", "deep-list", "depth_limit"),
    _list("O7", "broken-list", "invalid_message"),
    _list("O7", "broken-list-beside-silence", "invalid_message"),
    _list("O7", "list-of-another-type", "invalid_result"),
    _list("O7", "entries-of-other-types", ""),
    _list("O7", "duplicate-names", ""),
    _list("O8", "hostile-schemas", ""),
    _call("O9", "log-flood", MANY),
    _call("O9", "list-changed-flood", MANY),
    _call("O9", "unknown-flood", MANY),
    _call("O9", "progress-flood", MANY),
    _call("O10", "sampling-flood", MANY),
    _call("O10", "ping-flood", MANY),
    _call("O10", "unknown-requests", MANY),
    _call("O11", "foreign-ids", MANY),
    _call("O11", "answers-twice", MANY),
    _call("O11", "progress-of-others", MANY),
    _call("O11", "progress-beyond-numbers", MANY),
    _call(
        "O11", "only-foreign-ids", EVERY, "timeout", short=True, others={JSON: "no_answer", STREAM: "connection_lost"}
    ),
    _call("O12", "endless-rounds", BOTH_ERAS, "round_limit"),
    _call("O12", "fat-state", BOTH_ERAS, "round_limit"),
    _call("O13", "phishing", MANY, "rpc_error"),
)

LISTS: Final = frozenset(scene.name for scene in SCENES if scene.lists)


def played() -> Iterator[tuple[Scene, str]]:
    """Each scene over each transport that it applies to."""
    for scene in SCENES:
        for transport in scene.over:
            yield scene, transport
