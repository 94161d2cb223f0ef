"""Bounds on what a peer can make us hold or do. Each session has one set.

Where possible, each limit is checked before the bytes are parsed or the value is kept. The fault that names the limit
follows in brackets.
"""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    # -- one message

    #: bytes of one JSON-RPC message, on every transport and in both directions (message_limit). A 9 MB file fits,
    #: as base64
    message_bytes: int = 12 * MIB
    #: values (members, elements, arrays, objects) of one message: each takes far more memory than text (value_limit)
    message_values: int = 500_000
    #: messages of one batch, as 2025-03-26 allows them (value_limit)
    batch_messages: int = 1_000
    #: nesting of arrays and objects in one message (depth_limit)
    depth: int = 64

    # -- the bytes that carry a message

    #: bytes of one HTTP body, or of one WebSocket message, after decompression (inflated_limit)
    inflated_bytes: int = 12 * MIB
    #: maximum ratio of decompressed to compressed size of a body, checked beyond 1 MiB (inflated_limit)
    inflated_ratio: int = 100
    #: bytes of one SSE event including its comments and field names (message_limit)
    sse_event_bytes: int = 12 * MIB + 64 * KIB
    #: bytes of an event stream between two messages: comments, ids, events of other names (stream_limit)
    stream_bytes: int = 16 * MIB
    #: bytes of one line on a child's stdout before the client gives up on the server; bytes beyond `message_bytes` are
    #: read and discarded (line_limit)
    line_bytes: int = 128 * MIB
    #: stdout lines that are not messages, before the first message, until the client gives up on the server
    #: (stdout_noise)
    noise_lines: int = 50
    #: bytes of stderr kept for diagnosis, and characters of one line passed on; longer text is cut
    stderr_bytes: int = 64 * KIB
    line_chars: int = 2_000
    #: response headers: number of lines, and bytes in total (header_limit)
    header_count: int = 200
    header_bytes: int = 100 * KIB
    #: sockets of one session; further requests wait for a free one within their deadline
    http_connections: int = 256

    # -- lists

    #: entries of one listing: tools, resources, ... (list_limit); pages requested (page_limit). A repeated cursor also
    #: ends the listing (cursor_repeated). The entries read so far are kept.
    list_items: int = 10_000
    list_pages: int = 500
    #: bytes of all pages of one listing in total, as JSON text (list_limit)
    list_bytes: int = 32 * MIB

    # -- traffic

    #: our own requests in flight (pending_limit)
    pending_requests: int = 1024
    #: requests from the server that wait for an answer, and how many it may send per minute (server_request_limit);
    #: further requests are answered with an error
    open_server_requests: int = 32
    server_requests_per_minute: int = 120
    #: rounds of one request that asks for more input, and bytes of the state sent along with them (round_limit)
    rounds: int = 8
    request_state_bytes: int = 64 * KIB
    #: events per second (and burst) passed to `on_event`; further events are dropped and counted (event_limit)
    events_per_second: int = 1_000
    events_burst: int = 5_000
