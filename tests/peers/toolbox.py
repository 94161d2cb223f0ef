"""The tools, resources and prompts that every Python peer offers, written once for three SDKs.

Runs in the peers' environments, so it must not import anything of ours or pytest.
"""

import asyncio
import os
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

RPC_ERROR_CODE = -32010
RPC_ERROR_MESSAGE = "asked to answer with a JSON-RPC error"
RPC_ERROR_DATA = {"reason": "asked for", "retry": False}
SCRIPT = "<script>window.pwned = 'yes'</script><img src=x onerror=\"window.pwned='yes'\">"


@dataclass(frozen=True)
class Sdk:
    """The differences between the SDKs: the injected context, their exceptions, their image type."""

    context: type
    tool_error: type[Exception]
    image: Callable[..., Any]
    annotations: type
    rpc_error: Callable[[], Exception]


class Sum(BaseModel):
    total: int
    terms: list[int]


def record_effect(effect_id: str) -> int:
    """Append one line to $EFFECT_LOG, durably, and return the number of lines.

    This is the server's own count. Tests compare it with what the client believes it sent.
    """
    path = os.environ.get("EFFECT_LOG")
    if not path:
        return 0
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{effect_id}\t{os.getpid()}\t{time.time():.6f}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    with open(path, "rb") as log:
        return sum(1 for _ in log)


def png(width: int, height: int, rgb: tuple[int, int, int]) -> bytes:
    """A one-colour PNG image."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = (b"\x00" + bytes(rgb) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def install(server: Any, sdk: Sdk) -> None:
    _plain_tools(server, sdk)
    _failing_tools(server, sdk)
    _slow_tools(server, sdk)
    _effect_tools(server, sdk)
    _hostile_tools(server)
    _resources(server)
    _prompts(server)


def _plain_tools(server: Any, sdk: Sdk) -> None:
    read_only = sdk.annotations(readOnlyHint=True, idempotentHint=True)

    @server.tool(title="Echo", annotations=read_only)
    def echo(text: Annotated[str, Field(description="What to say back")]) -> str:
        """Say the text back."""
        return text

    @server.tool(title="Add", annotations=read_only)
    def add(a: int, b: int) -> Sum:
        """Add two whole numbers; the answer is structured content."""
        return Sum(total=a + b, terms=[a, b])

    @server.tool(title="Big answer")
    def big(size: Annotated[int, Field(ge=0, le=64_000_000, description="Bytes of text")]):
        """Answer with that many bytes of text (no return type: structured content would double the size)."""
        return "x" * size

    @server.tool(title="Image")
    def image(colour: Literal["red", "green", "blue"] = "red") -> sdk.image:
        """Answer with a small PNG image."""
        rgb = {"red": (214, 57, 57), "green": (47, 179, 68), "blue": (32, 107, 196)}[colour]
        return sdk.image(data=png(48, 32, rgb), format="png")


def _failing_tools(server: Any, sdk: Sdk) -> None:
    @server.tool(title="Fail")
    def fail(message: str = "asked to fail") -> str:
        """Answer with isError."""
        raise sdk.tool_error(message)

    @server.tool(title="JSON-RPC error")
    def rpc_error() -> str:
        """Answer with a JSON-RPC error instead of a result (FastMCP turns it into isError)."""
        raise sdk.rpc_error()


def _slow_tools(server: Any, sdk: Sdk) -> None:
    cut: list[int] = []

    @server.tool(title="Slow")
    async def slow(ctx: sdk.context, steps: int = 5, delay: float = 0.2) -> str:
        """Work in steps of `delay` seconds and report progress after each; can be cancelled."""
        try:
            for step in range(1, steps + 1):
                await asyncio.sleep(delay)
                await ctx.report_progress(step, steps, f"step {step} of {steps}")
        except asyncio.CancelledError:
            cut.append(steps)
            raise
        return f"done after {steps} steps"

    @server.tool(title="Cut short")
    def cut_short() -> str:
        """How many calls of `slow` were cancelled, by any client."""
        return str(len(cut))


def _effect_tools(server: Any, sdk: Sdk) -> None:
    @server.tool(title="Counter", annotations=sdk.annotations(destructiveHint=True, idempotentHint=False))
    async def counter(id: str, delay: float = 0.0) -> str:
        """Leave one durable line in the effect log, then wait, then answer with the number of lines."""
        count = record_effect(id)
        await asyncio.sleep(delay)
        return str(count)


def _hostile_tools(server: Any) -> None:
    @server.tool(name="nasty", title=f"Nasty {SCRIPT}", description=f"A description with {SCRIPT} in it.")
    def nasty(text: Annotated[str, Field(description=f"A parameter with {SCRIPT}")] = "") -> str:
        return f"{SCRIPT}{text}"

    @server.tool(name=SCRIPT, title="Script for a name", description="Its name is markup.")
    def named_by_markup() -> str:
        return SCRIPT


def _resources(server: Any) -> None:
    @server.resource("peer://clock", name="clock", title="Clock", mime_type="text/plain")
    def clock() -> str:
        """The time of day; changes at every reading."""
        return f"{time.time():.6f}"

    @server.resource("peer://readme", name="readme", title="Read me", mime_type="text/markdown")
    def readme() -> str:
        """A text that never changes."""
        return "# A peer\n\nA real MCP server for tests."

    if board := os.environ.get("BOARD_FILE"):

        @server.resource("peer://board", name="board", title="Board", mime_type="text/plain")
        def what_stands_on_the_board() -> str:
            """The content of $BOARD_FILE, which outlives this process."""
            return Path(board).read_text()

    @server.resource("peer://notes/{name}", name="note", title="Note", mime_type="text/plain")
    def note(name: str) -> str:
        """A note by its name."""
        return f"the note called {name}"


def _prompts(server: Any) -> None:
    @server.prompt(name="summarise", title="Summarise")
    def summarise(text: str, style: str = "short") -> str:
        """Ask for a summary."""
        return f"Summarise in a {style} way: {text}"
