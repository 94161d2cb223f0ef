"""What a fault means and what to do about it, for the person who runs the server. The only such table.

It contains the title and the remedy. The cause is the fault's detail, written where the fault is raised (for an HTTP
status: `sessions/mcp/transports/streamable_http/answers.py`).
"""

from dataclasses import dataclass

from servers import limits
from servers.enums import TransportKind
from servers.models import Server
from sessions.mcp.core.errors import Fault
from sessions.mcp.core.refusals import header_asked_for


@dataclass(frozen=True)
class Explanation:
    title: str
    cause: str
    remedy: str

    @property
    def in_one_line(self) -> str:
        """The cause, preceded by the title unless the cause already says it."""
        said = self.title.removeprefix("The ").lower() in self.cause.lower()
        return self.cause if said else f"{self.title}: {self.cause}"


# fault: (title, what to do). The cause is the fault's own detail.
_TABLE: dict[str, tuple[str, str]] = {
    Fault.COMMAND_NOT_FOUND: (
        "The command was not found",
        "Install the program on the worker's machine, or enter its full path as the command.",
    ),
    Fault.SPAWN_FAILED: (
        "The command could not be started",
        "Check that the file is executable and that the working directory exists on the worker's machine.",
    ),
    Fault.NOT_CONFINED: (
        "The worker cannot confine commands",
        "Run the worker on Linux 5.13 or newer with Landlock, install bubblewrap, or name a container runtime with MCPADMIN_CONTAINER_RUNTIME. If commands are allowed to do everything that mcpadmin can, an operator can set MCPADMIN_STDIO_UNCONFINED=1 instead.",
    ),
    Fault.PROCESS_EXITED: (
        "The process ended",
        "Check its stderr output. Common causes are a missing argument, module or credential.",
    ),
    Fault.PACKAGE_CHANGED: (
        "Refused: the package changed",
        "The pin is kept: the server starts again with Retry as soon as the registry or the worker's cache has the pinned content. Ask the maintainers of the package first; to accept the new content, use Review and pin again.",
    ),
    Fault.PACKAGE_UNAVAILABLE: (
        "The package registry did not deliver the package",
        "Check that the worker's machine can reach the registry. Proxies, mirrors, certificates and their credentials come from this server's variables or MCPADMIN_INHERITED_VARIABLES. A registry on a private network must be listed under Access, Hosts, or in MCPADMIN_STDIO_HOSTS. Once it is installed, the server starts without the registry.",
    ),
    Fault.PACKAGE_FAILED: (
        "The package could not be installed",
        "The message above is from the package manager. Check the name, version and options in the command, and that the package manager is installed on the worker's machine.",
    ),
    Fault.PROCESS_LIMIT: (
        "The process exceeded its limits",
        "mcpadmin stopped the process and restarts it. Check what it does.",
    ),
    Fault.STDOUT_NOISE: (
        "The program prints output other than MCP messages",
        "An MCP server must write only JSON-RPC to stdout. Check that the command starts the MCP server itself and that logs go to stderr.",
    ),
    Fault.DNS_FAILED: ("The host name could not be resolved", "Check the spelling of the URL and the DNS of the worker's machine."),
    Fault.ADDRESS_REFUSED: (
        "The address is not allowed",
        "The worker's log shows the address and the reason. An operator can allow networks with MCPADMIN_ALLOWED_NETWORKS.",
    ),
    Fault.CONNECTION_REFUSED: (
        "The connection was refused",
        "Nothing is listening at this address and port. Start the server or correct the URL.",
    ),
    Fault.CONNECTION_LOST: ("The connection was lost", "mcpadmin reconnects automatically. If it happens again, check the server's log."),
    Fault.TLS_FAILED: (
        "The TLS handshake failed",
        "Check the server's certificate: name, expiry and issuer. If a private CA issued it, add that CA under Settings, Credentials.",
    ),
    Fault.TIMEOUT: (
        "No response in time",
        "The server did not answer. Check its log and health, or raise the timeouts under Settings.",
    ),
    Fault.REDIRECTED: (
        "The server redirects to another address",
        "mcpadmin does not follow redirects for calls. Register the final URL instead.",
    ),
    Fault.UNAUTHORIZED: (
        "The server requires a credential",
        "Sign in, or add the token it expects under Settings, Credentials.",
    ),
    Fault.FORBIDDEN: ("The server denied access", "The credential may lack permission: use another one, or ask its issuer. Or a firewall or rate limit in front of the server refused the request."),
    Fault.ACCESS_REFUSED: (
        "The server refused access",
        "No credential was sent. Check the server's message above, if any: it may require a credential, or a firewall or gateway in front of the server may block this machine.",
    ),
    Fault.KEY_NEEDED: (
        "The server requires an API key or token",
        "Under Settings, Credentials, add an HTTP header credential with the header named above (often X-API-Key), or a bearer token.",
    ),
    Fault.HOST_REFUSED: (
        "The server's host guard refused the request",
        "Add the host and port of this URL to the allowed hosts of the server (Python SDK: TransportSecuritySettings(allowed_hosts=[…]); TypeScript SDK: allowedHosts; FastMCP and others: allowed_hosts), or use a URL with a host name that it allows.",
    ),
    Fault.ORIGIN_REFUSED: (
        "The server's origin guard refused the request",
        "mcpadmin sends no Origin header of its own. Remove the one set under Settings, Headers or by a proxy, or add it to the allowed origins of the server (Python SDK: TransportSecuritySettings(allowed_origins=[…]); TypeScript SDK: allowedOrigins; FastMCP and others: allowed_origins). If the server requires one, set an Origin header under Settings with a value it allows.",
    ),
    Fault.INSUFFICIENT_SCOPE: ("The server requires more permissions", "Sign in again and consent, then run the call again. Existing permissions stay valid until then."),
    Fault.AUTHORIZATION_FAILED: ("Could not get a token", "The message above says what must be changed and where. Then reconnect."),
    Fault.RATE_LIMITED: ("Rate limit reached", "The server reported too many requests. Wait before trying again."),
    Fault.SESSION_GONE: ("The server lost the session", "mcpadmin opens a new session automatically."),
    Fault.HTTP_STATUS: ("The server answered with an HTTP error", "Check that the URL is the MCP endpoint (often ending in /mcp), and check the server's log."),
    Fault.NO_ENDPOINT: ("This is not an HTTP+SSE endpoint", "The stream did not name a message endpoint. Check the path of the URL (often /sse), or choose Streamable HTTP."),
    Fault.ENDPOINT_REFUSED: ("Refused: the endpoint is on another origin", "The server asks mcpadmin to send messages, including your credentials, to another address. If you trust that address, register it directly."),
    Fault.NOT_MCP: ("This is not an MCP endpoint", "The address responds, but not with MCP. Check the path of the URL (often /mcp)."),
    Fault.NO_ANSWER: ("The server closed the stream without an answer", "The request reached the server. Check its log."),
    Fault.INVALID_MESSAGE: ("The server sent an invalid message", "This is a bug in the server. Report it to its maintainers with the text above."),
    Fault.INVALID_RESULT: ("The server sent an unusable result", "This is a bug in the server. Report it to its maintainers with the text above."),
    Fault.MESSAGE_LIMIT: ("Refused: message limit", "The response exceeded the message size limit, so it was not read. Request less data."),
    Fault.HEADER_LIMIT: ("Refused: header limit", "The server sent too many HTTP headers, or headers that are too large. Check any proxies in front of it."),
    Fault.INFLATED_LIMIT: ("Refused: decompression limit", "A compressed response expanded beyond the limit, so it was not read. Request less data."),
    Fault.LINE_LIMIT: ("Refused: line limit", "The server printed a line that is too long. An MCP server writes one message per line to stdout and logs to stderr."),
    Fault.VALUE_LIMIT: ("Refused: too many values", "The response contains more values than allowed, so it was not read. Request less data."),
    Fault.STREAM_LIMIT: ("Refused: a stream without messages", "The server keeps sending comments or empty events. Check its log."),
    Fault.PAGE_LIMIT: ("Truncated at the page limit", "The entries read so far are kept. To see more, raise the limit."),
    Fault.CURSOR_REPEATED: ("The list never ends", "The server repeated a cursor. Report it to its maintainers. Entries read so far are kept."),
    Fault.EVENT_LIMIT: ("Too many events", "The server sent more events than the limit; the rest were counted and dropped. If this is expected, raise the limit."),
    Fault.SERVER_REQUEST_LIMIT: ("Too many server requests", "Server requests beyond the limit were answered with an error. If this is expected, raise the limit."),
    Fault.ROUND_LIMIT: ("Too many rounds of input", "The server requested input in more rounds than allowed per call. The tool may have run. If this is expected, raise the limit."),
    Fault.TOTAL_DEADLINE: ("Total timeout reached", "The server kept reporting progress until the total timeout. Raise it under Settings, or request less work."),
    Fault.INPUT_NOT_OFFERED: ("The server requested input it was not offered", "Sampling or elicitation is off for this server, or it requests something mcpadmin does not offer. Check Settings, Protocol, or pass the input as arguments."),
    Fault.TASK_FAILED: ("The task failed", "The server reported only that the task failed, without a result. Check the server's log."),
    Fault.TASK_CANCELLED: ("The server cancelled the task", "It is not known what ran before that. Check the server, and run it again only if that does no harm."),
    Fault.TASK_LOST: ("The server no longer knows the task", "The task expired or the server was restarted. Check the server to see whether it ran before running it again."),
    Fault.INPUT_REFUSED: ("The server request was not answered", "The inbox shows whether the request was declined or expired. Run the call again and answer the request there."),
    Fault.DEPTH_LIMIT: ("Refused: nesting limit", "The response is nested too deeply to be read safely. If this is expected, raise the limit."),
    Fault.LIST_LIMIT: ("Truncated at the list limit", "The entries read so far are kept. To see more, raise the limit."),
    Fault.PENDING_LIMIT: ("Too many calls are waiting", "Wait until some running calls have finished."),
    Fault.RPC_ERROR: ("The server answered with an error", "The message above is from the server."),
    Fault.INCOMPATIBLE_VERSION: ("No common protocol revision", "The text above lists the revisions of both sides. If the protocol era is set manually, set it to Automatic; otherwise update the server or mcpadmin."),
    Fault.NOT_READY: ("The session is not open", "Connect the server first."),
    Fault.NOT_OFFERED: ("The server does not offer this", "It did not declare this capability when connecting."),
    Fault.INVALID_REQUEST: ("Invalid request", "Correct the arguments."),
    Fault.CANCELLED: ("Cancelled", "Run it again if you still need it."),
    Fault.CLOSED: ("The session was closed", "Connect the server to continue."),
    # Faults of mcpadmin itself, which the protocol does not define.
    "secret_unreadable": ("A secret cannot be decrypted", "Restore the missing key in the key ring file, or enter the secret again under Settings."),
    "credential_needed": ("A credential is needed", "The server's address changed, and credentials stay bound to the old address. Choose one for the new address under Settings, Credentials, or remove the old one there."),
    "not_encrypted": ("Refused: the connection is not encrypted", "Change the URL to https, or ask an operator to allow this host and port with MCPADMIN_PLAIN_HTTP_HOSTS."),
    "reference_missing": ("A reference cannot be resolved", "Correct the reference under Settings, or provide the referenced value on the worker's machine."),
    "reference_refused": ("Refused: a reference is not granted", "Each reference is granted by name. An administrator can grant it under Credentials, References to the person who last saved this connection; or a person who has the grant saves it again."),
    "variable_refused": ("Refused: a credential sets a variable that it may not set", "The message above says who can change this and where. Remove the credential under Settings, Credentials, or under Identity if it is your own."),
    "value_needed": ("A variable has no value", "Enter it under Settings, or use a credential for it under Settings, Credentials; for your own identity, under Identity."),
    "deleted": ("Deleted during the test", "Reload the page. If the server is still there, test it again."),
    "internal_error": ("mcpadmin failed", "Check the worker's log and report the problem; this is not the server's fault."),
}  # fmt: skip

#: the limits that a fault may have exceeded (servers.limits)
LIMITS_OF: dict[str, tuple[str, ...]] = {
    Fault.PROCESS_LIMIT: ("stdio_memory_mib", "stdio_processes", "stdio_disk_mib"),
    Fault.MESSAGE_LIMIT: ("message_bytes",),
    Fault.HEADER_LIMIT: ("header_count", "header_bytes"),
    Fault.INFLATED_LIMIT: ("inflated_bytes", "inflated_ratio"),
    Fault.LINE_LIMIT: ("line_bytes",),
    Fault.VALUE_LIMIT: ("message_values", "batch_messages"),
    Fault.STREAM_LIMIT: ("stream_bytes",),
    Fault.PAGE_LIMIT: ("list_pages",),
    Fault.LIST_LIMIT: ("list_items", "list_bytes"),
    Fault.EVENT_LIMIT: ("events_per_second",),
    Fault.SERVER_REQUEST_LIMIT: ("open_server_requests", "server_requests_per_minute"),
    Fault.ROUND_LIMIT: ("rounds", "request_state_bytes"),
    Fault.DEPTH_LIMIT: ("depth",),
    Fault.PENDING_LIMIT: ("pending_requests",),
}


def explain(fault: str, detail: str, server: Server | None = None) -> Explanation:
    """Explain `fault`. `server` adapts the remedy to its transport. The detail is always shown as the cause."""
    title, remedy = _TABLE.get(fault, ("Something went wrong", "See the details above. Reconnect to try again."))
    if fault == Fault.CONNECTION_LOST and server is not None and server.transport == TransportKind.STDIO:
        remedy = "mcpadmin restarts the command automatically. Its last output is in the log."
    if fault == Fault.KEY_NEEDED and (header := header_asked_for(detail)):
        remedy = (
            f"Under Settings, Credentials, add an HTTP header credential named {header}, with the key as its value."
        )
        if header.lower() == "authorization":
            remedy = (
                "Under Settings, Credentials, add a bearer token, or an HTTP header credential named Authorization."
            )
    if exceeded := LIMITS_OF.get(fault):
        remedy = f"{remedy} {limits.stated(*exceeded, server=server)}"
    return Explanation(title, detail, remedy)
