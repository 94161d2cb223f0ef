"""The JSON-RPC errors that this server answers with."""

from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
LEGACY_RESOURCE_NOT_FOUND = -32002
UNSUPPORTED_PROTOCOL_VERSION = -32022


class RpcError(Exception):
    """The request cannot be served; becomes the `error` member of the answer."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    def as_json(self) -> dict[str, Any]:
        body = {"code": self.code, "message": self.message}
        return body if self.data is None else body | {"data": self.data}


class ToolFailure(Exception):
    """The tool was asked properly and could not do it; becomes a result with `isError`."""


class Cancelled(Exception):
    """The client took the request back; it gets no answer."""
