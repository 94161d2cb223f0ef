"""The verbs that use a running mcpadmin. Each call is sent once; if its outcome is unknown, its id is reported."""

import asyncio
import base64
import binascii
import json
import os
import signal
import sys
import traceback
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mcpadmin.command_line.connecting import LIMITS, Connection, connection, read_file
from mcpadmin.command_line.exit_status import Ending, ExitStatus, ending_of, status_of
from mcpadmin.command_line.output import NotWritten, Output
from mcpadmin.command_line.streams import BROKEN_PIPE, let_go
from sessions.mcp.client import Client
from sessions.mcp.core import json_text, methods
from sessions.mcp.core.backoff import Backoff
from sessions.mcp.core.errors import InvalidRequest, McpError, ProtocolError, RpcError
from sessions.mcp.core.events import Event, Following, FollowingLost, ListChanged, ListKind, ResourceUpdated
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.results import Timeouts

_KINDS: Final = {
    "tools": ListKind.TOOLS,
    "resources": ListKind.RESOURCES,
    "templates": ListKind.RESOURCE_TEMPLATES,
    "prompts": ListKind.PROMPTS,
}


def run(given: Namespace) -> int:
    if sys.stderr is None:  # closed by who started this
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the whole process
    if sys.stdout is None:
        sys.stderr.write("mcpadmin: Standard output is closed, so the result could not be printed. Nothing was sent.\n")
        return ExitStatus.USAGE
    output = Output(given.output)
    try:
        return int(_run(given, output))
    except BrokenPipeError:  # `| head` has read enough
        return BROKEN_PIPE
    finally:
        let_go()


def _run(given: Namespace, output: Output) -> ExitStatus:
    reached: Connection | None = None
    try:
        try:
            reached = _read(given)
            return asyncio.run(_perform(given, output, reached))
        except KeyboardInterrupt:  # before `_on_signals`, or after the event loop gave the signals back
            if reached is None:
                raise Ending(ExitStatus.INTERRUPTED, "Interrupted. No tool was called.") from None
            if reached.printed is not None:
                return reached.printed
            raise _stopped(given, reached, timed_out=False) from None
    except Ending as ending:
        output.problem(ending, reached.page_of(ending.call) if reached is not None else "")
        return ending.status
    except BrokenPipeError:
        raise
    except Exception:  # a fault of ours must not end as 1, which says that the tool has answered
        traceback.print_exc()
        return ExitStatus.OUTCOME_UNKNOWN if reached is not None and reached.calling else ExitStatus.FAILED


def _read(given: Namespace) -> Connection:
    """Token and arguments. Before the event loop, which would keep Ctrl-C from a read that waits. Raises Ending."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a script's background job inherits that SIGINT is ignored
        signal.signal(number, signal.default_int_handler)
    if given.token_file == "-" and getattr(given, "json", "") == "-":  # noqa: S105 - standard input
        raise Ending(ExitStatus.USAGE, "Standard input can hold the token or the arguments, not both.")
    reached = connection(given)
    if "json" in given:
        given.arguments = _object(given.json)
    return reached


async def _perform(given: Namespace, output: Output, reached: Connection) -> ExitStatus:
    _on_signals()
    try:
        async with asyncio.timeout(given.timeout):
            return await _VERBS[given.verb](given, output, reached)
    except NotWritten as problem:
        status = ExitStatus.OUTCOME_UNKNOWN if reached.calling else ExitStatus.FAILED
        raise Ending(status, str(problem), reached.placed.call) from problem
    except (McpError, asyncio.CancelledError, TimeoutError) as stopped:
        if reached.printed is not None:  # while the session was being closed
            return reached.printed
        if isinstance(stopped, McpError):
            raise ending_of(stopped, call=reached.placed.call, calling=reached.calling) from stopped
        raise _stopped(given, reached, timed_out=isinstance(stopped, TimeoutError)) from stopped


def _on_signals() -> None:
    """Ctrl-C and SIGTERM cancel the running call; another one also cancels notifying mcpadmin of that."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - we run in one
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def _stopped(given: Namespace, reached: Connection, *, timed_out: bool) -> Ending:
    after = f"No answer within {given.timeout:g} s. " if timed_out else "Interrupted. "
    status = ExitStatus.TIMEOUT if timed_out else ExitStatus.INTERRUPTED
    if not reached.calling:
        return Ending(status, f"{after}No tool was called.")
    words = f"{after}Cancellation was requested, but the call may have run: check the server before you call it again."
    return Ending(status if timed_out else ExitStatus.OUTCOME_UNKNOWN, words, reached.placed.call)


def _object(text: str) -> dict[str, Any]:
    """The value of --json. Raises Ending (usage)."""
    if text == "-":
        text = read_file("-", "--json")
    elif text.startswith("@"):
        text = read_file(text[1:], "--json")
    try:
        value, mended = json_text.parse(
            text.encode("utf-8", "surrogatepass"), Limits(message_bytes=LIMITS.message_bytes)
        )
    except ProtocolError as problem:
        why = problem.detail.partition(": ")[2] or problem.detail
        raise Ending(ExitStatus.USAGE, f"--json: not valid JSON: {why}") from problem
    if mended:
        raise Ending(ExitStatus.USAGE, "--json: the arguments contain an unpaired surrogate.")
    if not isinstance(value, dict):
        raise Ending(ExitStatus.USAGE, '--json: the arguments must be a JSON object, such as {"name": "value"}.')
    return value


# --- call ------------------------------------------------------------------------------------------------------------
async def _call(given: Namespace, output: Output, reached: Connection) -> ExitStatus:
    key = {"Idempotency-Key": given.idempotency_key} if given.idempotency_key is not None else {}

    async def before_send(attempt: int, reason: str) -> None:
        reached.calling = True

    async with reached.client(given.server, headers=key) as client:
        done = await client.call_tool(given.tool, given.arguments, on_progress=output.progress, before_send=before_send)
        status, call = status_of(done.raw, call=reached.placed.call)
        if status not in (ExitStatus.SUCCESS, ExitStatus.TOOL_ERROR):
            raise Ending(status, _as_text(done.raw), call)  # the words are mcpadmin's, and no result of the tool
        if output.is_json:
            output.record(done.raw)
        else:
            output.text(_as_text(done.raw))
        reached.printed = status
    if status is ExitStatus.TOOL_ERROR:
        output.note("The tool reported an error.")
    return status


def _as_text(result: Mapping[str, Any]) -> str:
    blocks = result.get("content")
    lines = [_block(block) for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    if not lines and "structuredContent" in result:
        return json.dumps(result["structuredContent"], ensure_ascii=False, indent=2)
    return "\n".join(lines)


def _block(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource" and isinstance(inside := block.get("resource"), dict):
        return _content(inside)
    if kind == "resource_link":
        return f"[{block.get('name', '')} {block.get('uri', '')}]"
    return _binary(block.get("mimeType") or kind, block.get("data"))


def _content(content: Mapping[str, Any]) -> str:
    if isinstance(text := content.get("text"), str):
        return text
    return _binary(content.get("mimeType") or "binary", content.get("blob"))


def _binary(kind: object, data: object) -> str:
    size = f", {len(data) * 3 // 4:,} bytes" if isinstance(data, str) else ""
    return f"[{kind}{size}]"


# --- list, read, prompt ----------------------------------------------------------------------------------------------
async def _list_servers(output: Output, reached: Connection) -> ExitStatus:
    cursor: str | None = ""
    while cursor is not None:
        page = await reached.api("/servers", cursor=cursor, limit="200")
        for one in page["items"]:
            if output.is_json:
                output.record(one)
            else:
                output.text(f"{one['slug']:<24}  {one['name']}  {one['state'] or one['kind']}")
        cursor = page["next"]
    return ExitStatus.SUCCESS


async def _list(given: Namespace, output: Output, reached: Connection) -> ExitStatus:
    if not given.server:
        return await _list_servers(output, reached)
    async with reached.client(given.server) as client:
        readers = {
            "tools": client.list_tools,
            "resources": client.list_resources,
            "templates": client.list_resource_templates,
            "prompts": client.list_prompts,
        }
        incomplete = []
        for kind in given.kind or readers:
            listing = await readers[kind]()
            _write_list(output, kind, listing.items)
            for warning in listing.warnings:
                output.warning(f"{kind}: {warning}")
            if listing.truncated:
                incomplete.append(kind)
    if incomplete:
        raise Ending(ExitStatus.FAILED, f"The list is incomplete: {', '.join(incomplete)}.")
    return ExitStatus.SUCCESS


def _write_list(output: Output, kind: str, items: list[dict[str, Any]]) -> None:
    if output.is_json:
        for item in items:
            output.record({"kind": kind, "definition": item})
    elif items:
        member = methods.LISTS[_KINDS[kind]][2]
        names = [str(item.get(member, "")) for item in items]
        width = min(48, max(map(len, names)))
        lines = [
            f"  {name:<{width}}  {str(item.get('description') or item.get('title') or '').strip().partition(chr(10))[0]}"
            for name, item in zip(names, items, strict=True)
        ]
        output.text("\n".join([f"{kind.capitalize()} ({len(items)})", *(line.rstrip() for line in lines)]))


async def _resource(given: Namespace, output: Output, reached: Connection) -> ExitStatus:
    async with reached.client(given.server) as client:
        result = await client.read_resource(given.uri, on_progress=output.progress)
    contents = [one for one in result.get("contents", ()) if isinstance(one, dict)]
    if given.raw:
        for one in contents:
            output.raw(_bytes(one))
    elif output.is_json:
        output.record(result)
    else:
        for one in contents:
            output.text(_content(one))
    return ExitStatus.SUCCESS


def _bytes(content: Mapping[str, Any]) -> bytes:
    if isinstance(text := content.get("text"), str):
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(str(content.get("blob", "")), validate=True)
    except binascii.Error as problem:
        raise Ending(ExitStatus.FAILED, "The contents of this resource are not valid base64.") from problem


async def _prompt(given: Namespace, output: Output, reached: Connection) -> ExitStatus:
    if wrong := [name for name, value in given.arguments.items() if not isinstance(value, str)]:
        raise Ending(ExitStatus.USAGE, f"--json: the arguments of a prompt must be strings, but {wrong[0]} is not.")
    async with reached.client(given.server) as client:
        result = await client.get_prompt(given.prompt, given.arguments, on_progress=output.progress)
    if output.is_json:
        output.record(result)
    else:
        for message in result.get("messages", ()):
            content = message.get("content") if isinstance(message, dict) else None
            if isinstance(content, dict):
                output.text(f"{message.get('role', '')}: {_block(content)}")
    return ExitStatus.SUCCESS


# --- watch -----------------------------------------------------------------------------------------------------------
async def _watch(given: Namespace, output: Output, reached: Connection) -> ExitStatus:
    """Runs until it has reported --count changes or is stopped. A lost connection is reopened, with growing pauses."""
    watching, backoff = _Watching(given, output), Backoff()
    while True:
        try:
            ended = await watching.once(reached, backoff)
        except McpError as error:
            if error.permanent or not watching.began:
                raise
            watching.tell({"event": "connection_lost", "reason": error.detail}, f"Connection lost: {error.detail}")
            await asyncio.sleep(backoff.delay())
        else:
            if ended:
                return ExitStatus.SUCCESS


class _Watching:
    """`began`: the server has accepted the subscription once, so a later failure is an outage and not a mistake."""

    def __init__(self, given: Namespace, output: Output) -> None:
        self._given, self._output = given, output
        self._left = given.count or -1
        self.began = False

    async def once(self, reached: Connection, backoff: Backoff) -> bool:
        """One connection. True if all changes were reported. Raises McpError."""
        given, events = self._given, asyncio.Queue[Event | None](1_000)

        def on_event(event: Event) -> None:
            if isinstance(event, ListChanged | ResourceUpdated | FollowingLost | Following) and not events.full():
                events.put_nowait(event)

        def on_closed(_: object) -> None:
            if events.full():  # the end must not be missed
                events.get_nowait()
            events.put_nowait(None)

        lists = tuple(ListKind) if given.lists or not given.uris else ()
        async with reached.client(given.server, era="modern", timeouts=Timeouts(), on_event=on_event) as client:
            client.closed.add_done_callback(on_closed)
            honoured = await client.follow(given.uris, lists)
            if not honoured.resources and not honoured.lists:
                reasons = "; ".join(f"{name}: {why}" for name, why in honoured.refused.items())
                raise InvalidRequest(f"This server reports no such changes. {reasons}".strip())
            self.began = True
            for name, why in honoured.refused.items():
                if name in given.uris:
                    self.tell({"event": "refused", "uri": name, "reason": why}, f"Not watching {name}: {why}")
            while (event := await events.get()) is not None:
                if isinstance(event, Following):
                    backoff.reset()
                await self._received(client, event)
                if not self._left:
                    return True
            if (lost := client.closed.result()) is not None:
                raise lost
        return False

    async def _received(self, client: Client, event: Event) -> None:
        if isinstance(event, ListChanged):
            self.tell({"event": "list_changed", "list": event.kind.value}, f"Changed list: {event.kind.value}")
            self._left -= 1
        elif isinstance(event, ResourceUpdated):
            record: dict[str, Any] = {"event": "resource_updated", "uri": event.uri}
            text = f"Updated: {event.uri}"
            if self._given.read:
                try:
                    record["result"] = result = await client.read_resource(event.uri)
                    contents = [one for one in result.get("contents", ()) if isinstance(one, dict)]
                    text = "\n".join([text, *map(_content, contents)])
                except RpcError as refused:  # it may be gone: that is a change too
                    record["reason"] = refused.message
                    text = f"{text}\nIt could not be read: {refused.message}"
            self.tell(record, text)
            self._left -= 1
        elif isinstance(event, FollowingLost):
            self.tell({"event": "following_lost", "reason": event.reason}, f"Not listening: {event.reason}")
            if not event.retried:
                raise Ending(ExitStatus.REFUSED, event.reason)
        elif isinstance(event, Following):
            self.tell({"event": "following"}, "Listening for changes.")

    def tell(self, record: dict[str, Any], text: str) -> None:
        if self._output.is_json:
            self._output.record(record)
        else:
            self._output.text(text)


_VERBS: Final[dict[str, Callable[[Namespace, Output, Connection], Awaitable[ExitStatus]]]] = {
    "call": _call,
    "list": _list,
    "read": _resource,
    "prompt": _prompt,
    "watch": _watch,
}
