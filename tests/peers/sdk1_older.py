"""Compensates for what older SDK 1.x releases lack, so that one toolbox serves all of them."""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mcp.types
from mcp.server.fastmcp import Context

#: ToolAnnotations came with SDK 1.7 (revision 2025-03-26)
annotations: Callable[..., Any] = getattr(mcp.types, "ToolAnnotations", SimpleNamespace)


class Tolerant:
    """A FastMCP server whose decorators drop the arguments that this SDK does not know (titles, annotations)."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def tool(self, **arguments: Any) -> Callable[..., Any]:
        return self._server.tool(**_known(self._server.tool, arguments))

    def resource(self, uri: str, **arguments: Any) -> Callable[..., Any]:
        return self._server.resource(uri, **_known(self._server.resource, arguments))

    def prompt(self, **arguments: Any) -> Callable[..., Any]:
        return self._server.prompt(**_known(self._server.prompt, arguments))


def _known(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in parameters}


def _mend_progress() -> None:
    """Patch `report_progress` of older SDKs.

    Before SDK 1.9 progress had no message. Up to 1.12 it is not related to a request, and a server without sessions has
    no stream for such messages."""
    plain = Context.report_progress
    messages = "message" in inspect.signature(plain).parameters

    async def report_progress(self: Context, progress: float, total: float, message: str | None = None) -> None:
        words = {"message": message} if messages else {}
        if not getattr(self.fastmcp.settings, "stateless_http", False):
            return await plain(self, progress, total, **words)
        context = self.request_context
        token = context.meta and context.meta.progressToken
        if token is not None:
            words["related_request_id"] = self.request_id
            await context.session.send_progress_notification(token, progress, total, **words)

    Context.report_progress = report_progress


_mend_progress()
