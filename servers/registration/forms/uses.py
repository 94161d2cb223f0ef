"""One line on when to use which choice, shown next to the choice."""

from servers.enums import EraChoice, Recording, TransportKind

FOUND_OUT = "Enter a URL or a command. Transport, era and revision are detected."
OF_TRANSPORT = {
    "": FOUND_OUT,
    TransportKind.STDIO: "mcpadmin starts the server as a local process on a worker, for example with npx or uvx.",
    TransportKind.AUTO_HTTP: "The server is already running and has a URL. Tries Streamable HTTP first, then HTTP+SSE.",
    TransportKind.STREAMABLE_HTTP: "Tries only Streamable HTTP: for servers you know, or to see why it fails.",
    TransportKind.HTTP_SSE: "Tries only HTTP+SSE: for older servers, whose URL often ends in /sse.",
    TransportKind.WEBSOCKET: "For servers with a ws:// or wss:// URL. Not part of the MCP specification, so servers differ.",
}
OF_ERA = {
    EraChoice.AUTO: "Detects the era on connect and remembers it for one day.",
    EraChoice.LEGACY: "Starts with initialize without probing: for servers that fail on unknown requests.",
    EraChoice.MODERN: "Never falls back to initialize: for servers that support only 2026-07-28.",
}
OF_RECORDING = {
    Recording.FULL: "Keeps every message with its content, and each HTTP request with its headers. Credentials are masked.",
    Recording.HEADERS: "Keeps methods, names, ids, sizes, times and HTTP headers, but no arguments, results or error texts.",
    Recording.OFF: "Keeps nothing. Messages recorded earlier are kept until they expire.",
}


def use(transport: TransportKind) -> str:
    """The line, prefixed with the transport's name."""
    return f"{transport.label}: {OF_TRANSPORT[transport]}"
