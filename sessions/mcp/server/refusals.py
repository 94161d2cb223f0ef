"""A request that is answered with a JSON-RPC error: HTTP status, code and words as data."""

from collections.abc import Mapping
from math import ceil
from typing import Any, Final

from ..core import jsonrpc
from ..core.jsonrpc import RequestId

#: legacy code for a resource that does not exist; modern servers use INVALID_PARAMS
RESOURCE_NOT_FOUND: Final = -32002
#: our own codes: outside the range that JSON-RPC and MCP reserve
UNAUTHORIZED: Final = 4010
#: a scope or a right is missing, or a rule denies the request
FORBIDDEN: Final = 4030
#: the request waits for approval by a person
HELD: Final = 4250
QUOTA: Final = 4290
DUPLICATE: Final = 4091
NOT_SENT: Final = 5030


class Refusal(Exception):
    """`status` counts only if no answer has begun: in a stream or a batch, only the error is sent."""

    def __init__(
        self,
        status: int,
        code: int,
        message: str,
        data: Any = None,
        *,
        id: RequestId | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.data = data
        self.id = id
        self.headers = dict(headers or {})

    def of(self, identity: RequestId | None) -> "Refusal":
        """The same refusal as the answer to a request; the id is echoed if it could be read."""
        self.id = identity
        return self

    @property
    def body(self) -> bytes:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return jsonrpc.encode({"jsonrpc": "2.0", "id": self.id, "error": error})


def later(
    status: int,
    code: int,
    message: str,
    seconds: float,
    data: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Refusal:
    """A temporary refusal. Both header and body say when to retry, because many agents lose the header."""
    header = {} if status == 200 else {"Retry-After": str(max(1, ceil(seconds)))}
    body = {**(data or {}), "retryAfterMs": ceil(seconds * 1000)}
    return Refusal(status, code, message, body, headers=header | dict(headers or {}))


def invalid_request(message: str, status: int = 400) -> Refusal:
    return Refusal(status, jsonrpc.INVALID_REQUEST, message)


def invalid_params(message: str, data: Any = None, status: int = 200) -> Refusal:
    return Refusal(status, jsonrpc.INVALID_PARAMS, message, data)
