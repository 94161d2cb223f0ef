"""Bounds on what a peer may make us hold. One value for each session."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    #: bytes of one JSON-RPC message, on every transport and in both directions
    message_bytes: int = 8 * MIB
    #: bytes of one SSE event including its comments and field names
    sse_event_bytes: int = 8 * MIB + 64 * KIB
    #: bytes of one HTTP body after decompression, summed over all events of a stream between two messages
    inflated_bytes: int = 16 * MIB
    #: nesting of arrays and objects in one message
    depth: int = 64
    #: response headers: number of lines, and bytes of all together
    header_count: int = 200
    header_bytes: int = 100 * KIB
    #: sockets of one session; requests beyond wait for one within their deadline
    http_connections: int = 256
    #: entries of one listing (tools, resources, ...), and pages asked for
    list_items: int = 10_000
    list_pages: int = 500
    #: answers to requests of the server that wait to be sent
    open_server_requests: int = 32
    #: our own requests in flight
    pending_requests: int = 1024
    #: lines on stdout that are no messages, before the first message, until the server is given up
    noise_lines: int = 50
    #: bytes of stderr kept for diagnosis, and characters of one line handed on
    stderr_bytes: int = 64 * KIB
    line_chars: int = 2_000
    #: events a second (and burst) handed to `on_event`; more are dropped and counted
    events_per_second: int = 1_000
    events_burst: int = 5_000
