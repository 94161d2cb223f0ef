"""What can go wrong between us and an MCP server, grouped by how the caller should react.

    McpError
      LocalError                  this side refused or failed; the server did nothing wrong
        LaunchError               the command cannot be started
        AddressRefused            the egress policy forbids the address
        NotReady                  the session is not open (or was closed by us)
        InvalidRequest            what the caller gave cannot be put on the wire
        TooManyPending            our own bound on requests in flight
      RemoteError                 the server, or the way to it
        TransportError            no (complete) answer: refused, lost, timed out, process gone
        HttpError                 an HTTP answer that is not an MCP answer
        AuthorizationError        no token could be obtained
          SignInNeeded            a person has to sign in at the authorization server
        ProtocolError             an answer that breaks the protocol or one of our limits
          IncompatibleVersion     no common protocol revision
        RpcError                  a well-formed JSON-RPC error

Every error carries `fault` (stable machine word), `may_have_run` (False only if it is certain that the server did not
execute the request) and `detail`. `detail` may be shown to users who may edit the server, so it never holds header or
environment values.
"""

from enum import StrEnum
from typing import Any, Self


class Fault(StrEnum):
    COMMAND_NOT_FOUND = "command_not_found"
    SPAWN_FAILED = "spawn_failed"
    #: nothing on this machine can confine a command
    NOT_CONFINED = "not_confined"
    PROCESS_EXITED = "process_exited"
    #: the registry offers different content under the version that a launcher should run
    PACKAGE_CHANGED = "package_changed"
    #: the registry does not answer, and the package is not installed yet
    PACKAGE_UNAVAILABLE = "package_unavailable"
    #: the package manager failed for another reason
    PACKAGE_FAILED = "package_failed"
    #: the child and its descendants together exceed a resource limit
    PROCESS_LIMIT = "process_limit"
    STDOUT_NOISE = "stdout_noise"
    DNS_FAILED = "dns_failed"
    ADDRESS_REFUSED = "address_refused"
    CONNECTION_REFUSED = "connection_refused"
    CONNECTION_LOST = "connection_lost"
    TLS_FAILED = "tls_failed"
    TIMEOUT = "timeout"
    REDIRECTED = "redirected"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    #: a 403 to a request that carried no credential
    ACCESS_REFUSED = "access_refused"
    #: the server's words ask for a key or token, and the request carried none
    KEY_NEEDED = "key_needed"
    #: the server's own checks rejected our Host or Origin header
    HOST_REFUSED = "host_refused"
    ORIGIN_REFUSED = "origin_refused"
    #: a user has to grant more scopes at the authorization server
    INSUFFICIENT_SCOPE = "insufficient_scope"
    #: the authorization server gave us no token, or the server's metadata about it is unusable
    AUTHORIZATION_FAILED = "authorization_failed"
    RATE_LIMITED = "rate_limited"
    SESSION_GONE = "session_gone"
    HTTP_STATUS = "http_status"
    NOT_MCP = "not_mcp"
    #: HTTP+SSE: the stream named no endpoint to post to, or one that we may not post to
    NO_ENDPOINT = "no_endpoint"
    ENDPOINT_REFUSED = "endpoint_refused"
    NO_ANSWER = "no_answer"
    INVALID_MESSAGE = "invalid_message"
    INVALID_RESULT = "invalid_result"
    #: the server requires input that we did not declare
    INPUT_NOT_OFFERED = "input_not_offered"
    #: the server asked for input, and the answering side declined
    INPUT_REFUSED = "input_refused"
    # Each limit of limits.py has its own name.
    MESSAGE_LIMIT = "message_limit"
    INFLATED_LIMIT = "inflated_limit"
    LINE_LIMIT = "line_limit"
    DEPTH_LIMIT = "depth_limit"
    VALUE_LIMIT = "value_limit"
    HEADER_LIMIT = "header_limit"
    STREAM_LIMIT = "stream_limit"
    LIST_LIMIT = "list_limit"
    PAGE_LIMIT = "page_limit"
    CURSOR_REPEATED = "cursor_repeated"
    EVENT_LIMIT = "event_limit"
    SERVER_REQUEST_LIMIT = "server_request_limit"
    PENDING_LIMIT = "pending_limit"
    ROUND_LIMIT = "round_limit"
    #: the total time, which progress does not extend (it does extend TIMEOUT)
    TOTAL_DEADLINE = "total_deadline"
    #: a task failed without its own error, was cancelled by the server, or is no longer known to the server
    TASK_FAILED = "task_failed"
    TASK_CANCELLED = "task_cancelled"
    TASK_LOST = "task_lost"
    RPC_ERROR = "rpc_error"
    INCOMPATIBLE_VERSION = "incompatible_version"
    NOT_READY = "not_ready"
    NOT_OFFERED = "not_offered"
    INVALID_REQUEST = "invalid_request"
    CANCELLED = "cancelled"
    CLOSED = "closed"


#: Faults that a retry cannot fix: a person has to change something first.
PERMANENT = frozenset(
    {
        Fault.COMMAND_NOT_FOUND,
        Fault.ADDRESS_REFUSED,
        Fault.REDIRECTED,
        Fault.UNAUTHORIZED,
        Fault.FORBIDDEN,
        Fault.ACCESS_REFUSED,
        Fault.KEY_NEEDED,
        Fault.HOST_REFUSED,
        Fault.ORIGIN_REFUSED,
        Fault.INSUFFICIENT_SCOPE,
        Fault.AUTHORIZATION_FAILED,
        Fault.NOT_MCP,
        Fault.ENDPOINT_REFUSED,
        Fault.INCOMPATIBLE_VERSION,
        Fault.INVALID_REQUEST,
        Fault.NOT_OFFERED,
    }
)


class McpError(Exception):
    """Root of the hierarchy. `detail` is a sentence for the user."""

    def __init__(self, fault: Fault, detail: str, *, may_have_run: bool = False) -> None:
        super().__init__(detail)
        self.fault = fault
        self.detail = detail
        self.may_have_run = may_have_run

    @property
    def permanent(self) -> bool:
        """True when a retry is pointless until a person changes something."""
        return self.fault in PERMANENT

    def again(self, *, may_have_run: bool) -> Self:
        """A copy for another request that the same error ended. Each raised exception needs its own traceback."""
        other = type(self).__new__(type(self), *self.args)
        other.__dict__.update(self.__dict__)
        other.may_have_run = may_have_run
        return other

    def __str__(self) -> str:
        return f"{self.fault}: {self.detail}"


class LocalError(McpError):
    """This side refused or failed."""


class LaunchError(LocalError):
    """The command of a stdio server cannot be started."""


class AddressRefused(LocalError):
    """The egress policy forbids the address that the name or URL resolves to."""

    def __init__(self, detail: str) -> None:
        super().__init__(Fault.ADDRESS_REFUSED, detail)


class NotReady(LocalError):
    """The session is not open, or this side closed it."""

    def __init__(self, detail: str, fault: Fault = Fault.NOT_READY, *, may_have_run: bool = False) -> None:
        super().__init__(fault, detail, may_have_run=may_have_run)


class InvalidRequest(LocalError):
    """The caller's input cannot be sent: it is not JSON, over a limit, or not offered by the server."""

    def __init__(self, detail: str, fault: Fault = Fault.INVALID_REQUEST) -> None:
        super().__init__(fault, detail)


class TooManyPending(LocalError):
    """This side reached its own bound on requests in flight."""

    def __init__(self, detail: str) -> None:
        super().__init__(Fault.PENDING_LIMIT, detail)


class RemoteError(McpError):
    """The server failed, or the connection to it."""


class TransportError(RemoteError):
    """No complete answer arrived: refused, lost, timed out, or the process ended.

    `exit_code` and `stderr_tail` are set for a child process that ended.
    """

    def __init__(
        self,
        fault: Fault,
        detail: str,
        *,
        may_have_run: bool,
        exit_code: int | None = None,
        stderr_tail: str = "",
    ) -> None:
        super().__init__(fault, detail, may_have_run=may_have_run)
        self.exit_code = exit_code
        self.stderr_tail = stderr_tail


class HttpError(RemoteError):
    """An HTTP answer that is not an MCP answer. `challenges`: the WWW-Authenticate values of a 401 or 403. `words`: the
    server's text from the body; `detail` ends with it too."""

    def __init__(
        self,
        fault: Fault,
        detail: str,
        *,
        status: int,
        may_have_run: bool,
        retry_after: float | None = None,
        challenges: tuple[str, ...] = (),
        location: str = "",
        words: str = "",
    ) -> None:
        super().__init__(fault, detail, may_have_run=may_have_run)
        self.status = status
        self.retry_after = retry_after
        self.challenges = challenges
        self.location = location
        self.words = words


class AuthorizationError(RemoteError):
    """No token could be obtained, and a retry will not change that. The server did not execute the request. After a
    failed `iss` check, the error holds nothing that the authorization server or the redirect said."""

    def __init__(self, detail: str, fault: Fault = Fault.AUTHORIZATION_FAILED) -> None:
        super().__init__(fault, detail, may_have_run=False)


class SignInNeeded(AuthorizationError):
    """A user has to sign in. With INSUFFICIENT_SCOPE the earlier grant stays valid and the user only has to grant more.
    `metadata_url`, `scopes` and `scheme` come from the server's challenge: pass them to `Authorization.begin`."""

    def __init__(
        self,
        detail: str,
        fault: Fault = Fault.UNAUTHORIZED,
        *,
        metadata_url: str = "",
        scopes: tuple[str, ...] = (),
        scheme: str = "",
    ) -> None:
        super().__init__(detail, fault)
        self.metadata_url = metadata_url
        self.scopes = scopes
        self.scheme = scheme


class ProtocolError(RemoteError):
    """An answer that breaks the protocol or one of our limits."""

    def __init__(self, fault: Fault, detail: str, *, may_have_run: bool = True) -> None:
        super().__init__(fault, detail, may_have_run=may_have_run)


class IncompatibleVersion(ProtocolError):
    """No common protocol revision; `supported` lists the revisions that the server named."""

    def __init__(self, detail: str, supported: tuple[str, ...] = ()) -> None:
        super().__init__(Fault.INCOMPATIBLE_VERSION, detail, may_have_run=False)
        self.supported = supported


class RpcError(RemoteError):
    """A JSON-RPC error answer. `http_status` is set when the HTTP status was not 2xx."""

    def __init__(
        self,
        code: int,
        message: str,
        data: Any = None,
        *,
        http_status: int | None = None,
        may_have_run: bool = True,
    ) -> None:
        super().__init__(Fault.RPC_ERROR, message, may_have_run=may_have_run)
        self.code = code
        self.message = message
        self.data = data
        self.http_status = http_status

    def __str__(self) -> str:
        return f"{self.fault}: {self.code} {self.message}"
