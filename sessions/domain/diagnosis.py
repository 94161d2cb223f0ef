"""What a fault means and what to do about it, in words for the person who runs the server. The one table."""

from dataclasses import dataclass

from servers.enums import TransportKind
from servers.models import Server
from sessions.protocol.errors import Fault


@dataclass(frozen=True)
class Explanation:
    title: str
    cause: str
    remedy: str


# fault: (title, what to do). The cause is the fault's own detail.
_TABLE: dict[str, tuple[str, str]] = {
    Fault.COMMAND_NOT_FOUND: (
        "The command was not found",
        "Install the program on the machine of the worker, or give its full path in the command field.",
    ),
    Fault.SPAWN_FAILED: (
        "The command could not be started",
        "Check that the file is executable and that the working directory exists on the worker's machine.",
    ),
    Fault.PROCESS_EXITED: (
        "The process ended",
        "Read what it wrote to stderr below: a missing argument, module or credential is the usual reason.",
    ),
    Fault.PROCESS_LIMIT: (
        "The process used more than it may",
        "mcpadmin ended it and starts it again. Find out what it does, or have the operator raise MCPADMIN_STDIO_MEMORY_MIB or MCPADMIN_STDIO_PROCESSES.",
    ),
    Fault.STDOUT_NOISE: (
        "The program prints something else than MCP messages",
        "An MCP server must keep stdout for JSON-RPC. Check that the command starts the MCP server itself, and send logs to stderr.",
    ),
    Fault.DNS_FAILED: ("The host name could not be resolved", "Check the spelling of the URL and the DNS of the worker's machine."),
    Fault.ADDRESS_REFUSED: (
        "The address is not allowed",
        "The worker's log says which address it was and why. An operator can allow networks with MCPADMIN_ALLOWED_NETWORKS.",
    ),
    Fault.CONNECTION_REFUSED: (
        "The connection was refused",
        "Nothing listens at this address and port. Start the server, or correct the URL.",
    ),
    Fault.CONNECTION_LOST: ("The connection was lost", "mcpadmin reconnects by itself. When it happens again, read the server's own log."),
    Fault.TLS_FAILED: ("The TLS handshake failed", "Check the server's certificate: its name, its expiry and who issued it."),
    Fault.TIMEOUT: (
        "No answer in time",
        "The server accepted the connection but did not answer. Check that it is healthy, or raise the time-outs under Settings.",
    ),
    Fault.REDIRECTED: (
        "The server redirects to another address",
        "A call is never sent on to a redirect. Register the final URL instead.",
    ),
    Fault.UNAUTHORIZED: (
        "The server asks for a credential",
        "Sign in, or give it the token it expects under Settings, Credentials.",
    ),
    Fault.FORBIDDEN: ("The server refuses this credential", "The credential is known but lacks the right. Use another one, or ask its issuer."),
    Fault.INSUFFICIENT_SCOPE: ("The server asks you to allow more", "Sign in once more and consent to it, then run it again. What was allowed before goes on until then."),
    Fault.AUTHORIZATION_FAILED: ("No token could be had", "The words above say which side has to change something. When it was changed, connect again."),
    Fault.RATE_LIMITED: ("The server limits the rate", "Wait before you try again; the server said too many requests."),
    Fault.SESSION_GONE: ("The server forgot the session", "mcpadmin opens a new one by itself."),
    Fault.HTTP_STATUS: ("The server answered with an HTTP error", "Check that the URL is the MCP endpoint (often it ends in /mcp) and read the server's log."),
    Fault.NO_ENDPOINT: ("This is not an HTTP+SSE endpoint", "The stream did not name an endpoint to post to: check the path of the URL (often /sse), or choose Streamable HTTP."),
    Fault.ENDPOINT_REFUSED: ("Refused: the endpoint is on another origin", "The server wants messages, and with them your credentials, sent to another address. If you trust it, register that address itself."),
    Fault.NOT_MCP: ("This is not an MCP endpoint", "The address answers, but not with MCP: check the path of the URL (often /mcp)."),
    Fault.NO_ANSWER: ("The server closed the stream without an answer", "Read the server's log; the request reached it."),
    Fault.INVALID_MESSAGE: ("The server sent an invalid message", "This is a fault of the server: report it with the text above."),
    Fault.INVALID_RESULT: ("The server sent an unusable result", "This is a fault of the server: report it with the text above."),
    Fault.MESSAGE_LIMIT: ("Refused: message limit", "The answer was larger than the message limit, so it was not read. Ask for less, or raise the limit under Settings, Limits."),
    Fault.HEADER_LIMIT: ("Refused: header limit", "The server's HTTP headers are too many or too large. Look at the proxies before it, or raise the limit under Settings, Limits."),
    Fault.INFLATED_LIMIT: ("Refused: decompression limit", "A compressed answer grew too large, so it was not read. Ask for less, or raise the limit under Settings, Limits."),
    Fault.LINE_LIMIT: ("Refused: line limit", "The server prints one line without end. An MCP server writes one message on each line of stdout, and logs to stderr."),
    Fault.VALUE_LIMIT: ("Refused: too many values", "The answer holds more values than one message may, so it was not read. Ask for less, or raise the limit under Settings, Limits."),
    Fault.STREAM_LIMIT: ("Refused: a stream without messages", "The server sends comments or empty events without end. Read its log."),
    Fault.PAGE_LIMIT: ("Cut at the page limit", "To see more, raise the limit under Settings, Limits."),
    Fault.CURSOR_REPEATED: ("The list runs in a circle", "The server gave a cursor for the second time: report it to its maker. What was read until then is kept."),
    Fault.EVENT_LIMIT: ("Too many events", "The server sends more than is handled; the rest was counted and dropped. Where it must be so, raise the limit under Settings, Limits."),
    Fault.SERVER_REQUEST_LIMIT: ("The server asks too often", "Requests of the server beyond the limit were answered with an error. Where it must be so, raise the limit under Settings, Limits."),
    Fault.ROUND_LIMIT: ("The server keeps asking", "It asked for more input in more rounds than one call may take. The tool may have run. Where it must be so, raise the limit under Settings, Limits."),
    Fault.TOTAL_DEADLINE: ("The total time is over", "The server kept reporting progress until the total time-out. Raise it under Settings, or ask for less."),
    Fault.INPUT_NOT_OFFERED: ("The server asks for input that it was not offered", "Sampling or elicitation is switched off for this server, or it asks for something else that nobody offered. Look under Settings, Protocol, or give the tool what it needs as arguments."),
    Fault.TASK_FAILED: ("The task failed", "The server handed over no answer of the tool, only that it failed. Read the server's log."),
    Fault.TASK_CANCELLED: ("The server cancelled the task", "What it had done until then is not known here. Ask at the server, then run it again if that does no harm."),
    Fault.TASK_LOST: ("The server no longer knows the task", "It expired or the server was restarted. Find out at the server whether it ran before you run it again."),
    Fault.INPUT_REFUSED: ("The server's question got no answer", "The inbox says whether it was declined or nobody answered in time. Run it again and answer the question there."),
    Fault.DEPTH_LIMIT: ("Refused: nesting limit", "The answer is nested too deeply to be read safely. Where it must be so, raise the limit under Settings, Limits."),
    Fault.LIST_LIMIT: ("Cut at the list limit", "To see more, raise the limit under Settings, Limits."),
    Fault.PENDING_LIMIT: ("Too many calls are waiting", "Wait until some of the running calls have ended."),
    Fault.RPC_ERROR: ("The server answered with an error", "The message above is the server's own."),
    Fault.INCOMPATIBLE_VERSION: ("No common protocol revision", "The server speaks a revision of MCP that mcpadmin does not know. Update one of them."),
    Fault.NOT_READY: ("The session is not open", "Connect the server first."),
    Fault.NOT_OFFERED: ("The server does not offer this", "It did not declare the capability when it connected."),
    Fault.INVALID_REQUEST: ("This cannot be sent", "Correct the arguments."),
    Fault.CANCELLED: ("Cancelled", "Run it again if you still need it."),
    Fault.CLOSED: ("The session was closed", "Connect the server to go on."),
    # Faults of this side, which the protocol does not know.
    "secret_unreadable": ("A secret cannot be opened", "Put the missing key back into the key ring file, or enter the secret again under Settings."),
    "credential_needed": ("A credential is needed", "The server moved to another address, and a credential never follows. Choose one for the new address on the server's page Credentials, or remove the old one there."),
    "not_encrypted": ("Refused: the connection is not encrypted", "Change the URL to https, or let an operator allow this host and port with MCPADMIN_PLAIN_HTTP_HOSTS."),
    "reference_missing": ("A reference cannot be resolved", "Correct the reference under Settings, or provide what it names on the worker's machine."),
    "internal_error": ("mcpadmin failed", "Read the worker's log and report it; the server is not at fault."),
}  # fmt: skip


def explain(fault: str, detail: str, server: Server | None = None) -> Explanation:
    """Words for `fault`; `server` sharpens the remedy to its transport. An unknown fault keeps its own detail."""
    title, remedy = _TABLE.get(fault, ("Something failed", "Read the detail above; reconnect to try again."))
    if fault == Fault.CONNECTION_LOST and server is not None and server.transport == TransportKind.STDIO:
        remedy = "mcpadmin starts the command again by itself. Its last words are in the log."
    return Explanation(title, detail, remedy)
