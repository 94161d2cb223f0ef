"""Shorthands for calls to a scripted child."""

from .making import FlowSecrets


def text(result: object) -> str:
    return str(result.content[0]["text"])  # type: ignore[attr-defined]  # ToolResult of our own servers


async def call(made: FlowSecrets, name: str, **arguments: object) -> str:
    return text(await made.client.call_tool(name, arguments))
