"""One line on when to use which choice, shown beside the choice."""

from servers.enums import EraChoice, TransportKind

FOUND_OUT = "Enter a URL or a command: transport, era and revision are found out."
OF_TRANSPORT = {
    "": FOUND_OUT,
    TransportKind.STDIO: "mcpadmin starts the server itself, as a process on a worker. For programs such as npx or uvx.",
    TransportKind.AUTO_HTTP: "The server runs already and has a URL. Streamable HTTP is tried first, then HTTP+SSE.",
    TransportKind.STREAMABLE_HTTP: "Only this one is tried: for a server that you know, or to see why it fails.",
    TransportKind.HTTP_SSE: "Only this one is tried: for old servers, whose URL often ends in /sse.",
    TransportKind.WEBSOCKET: "For servers with a ws:// or wss:// URL. No revision of MCP defines it, so servers differ.",
}
OF_ERA = {
    EraChoice.AUTO: "Asks the server once which era it speaks, and remembers the answer for a day.",
    EraChoice.LEGACY: "Never asks and starts with initialize: for servers that die of a question they do not know.",
    EraChoice.MODERN: "Never falls back to initialize: for servers that speak 2026-07-28 only.",
}


def use(transport: TransportKind) -> str:
    """The line with the transport's name before it."""
    return f"{transport.label}: {OF_TRANSPORT[transport]}"
