"""Bounds on what a peer may make us hold or do. One value for each session.

Each is checked before the bytes are parsed or the value is kept, wherever that is possible; the fault that names
it stands beside it.
"""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    # -- one message

    #: bytes of one JSON-RPC message, on every transport and in both directions (message_limit)
    message_bytes: int = 8 * MIB
    #: values (members, elements, arrays, objects) of one message: each costs us far more than its bytes (value_limit)
    message_values: int = 500_000
    #: messages of one batch, as 2025-03-26 allows them (value_limit)
    batch_messages: int = 1_000
    #: nesting of arrays and objects in one message (depth_limit)
    depth: int = 64

    # -- the bytes that carry it

    #: bytes of one HTTP body, or of one WebSocket message, after decompression (inflated_limit)
    inflated_bytes: int = 8 * MIB
    #: how many times larger than its compressed bytes a body may become, judged beyond 1 MiB (inflated_limit)
    inflated_ratio: int = 100
    #: bytes of one SSE event including its comments and field names (message_limit)
    sse_event_bytes: int = 8 * MIB + 64 * KIB
    #: bytes of an event stream from one message to the next: comments, ids, events of other names (stream_limit)
    stream_bytes: int = 16 * MIB
    #: bytes of one line on a child's stdout that are read, and thrown away beyond `message_bytes`, until the server
    #: is given up (line_limit)
    line_bytes: int = 128 * MIB
    #: lines on stdout that are no messages, before the first message, until the server is given up (stdout_noise)
    noise_lines: int = 50
    #: bytes of stderr kept for diagnosis, and characters of one line handed on; what is longer is cut
    stderr_bytes: int = 64 * KIB
    line_chars: int = 2_000
    #: response headers: number of lines, and bytes of all together (header_limit)
    header_count: int = 200
    header_bytes: int = 100 * KIB
    #: sockets of one session; requests beyond wait for one within their deadline
    http_connections: int = 256

    # -- lists

    #: entries of one listing: tools, resources, ... (list_limit); pages asked for (page_limit). A cursor that comes
    #: back ends the listing as well (cursor_repeated). What was read until then is kept.
    list_items: int = 10_000
    list_pages: int = 500
    #: bytes of all pages of one listing together, as JSON text (list_limit)
    list_bytes: int = 32 * MIB

    # -- traffic

    #: our own requests in flight (pending_limit)
    pending_requests: int = 1024
    #: requests of the server that wait for an answer, and how many it may make in a minute
    #: (server_request_limit); those beyond are answered with an error
    open_server_requests: int = 32
    server_requests_per_minute: int = 120
    #: rounds of one request that asks for more input, and bytes of the state that travels with them (round_limit)
    rounds: int = 8
    request_state_bytes: int = 64 * KIB
    #: events a second (and burst) handed to `on_event`; more are dropped and counted (event_limit)
    events_per_second: int = 1_000
    events_burst: int = 5_000
