"""Calls: claim, send, outcome. Each message or tick only names a row; a row is sent at most once, whatever is repeated."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from sessions.domain import claims
from sessions.domain.claims import Order, Outcome
from sessions.host import outcomes
from sessions.host.db import Database, DatabaseAway
from sessions.host.live import Live
from sessions.host.progress import Progress
from sessions.protocol.errors import Fault, McpError, NotReady
from sessions.protocol.results import ToolResult
from sessions.schemas import checker

INBOX_LIMIT = 1_000
log = structlog.get_logger(__name__)
FindSession = Callable[[int], Live | None]


class Calls:
    """All calls that this worker has in its hands, from the first look at the row to the committed outcome."""

    def __init__(self, db: Database, find: FindSession, counters: "Counter[str]") -> None:
        self._db, self._find, self._counters = db, find, counters
        self._running: dict[UUID, CallRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = False

    def accept(self, uid: UUID) -> None:
        """Look at a call's row. Full means dropped: the tick finds the row again."""
        if self.closed or uid in self._running:
            return
        if len(self._running) >= INBOX_LIMIT:
            self._counters["inbox_full"] += 1
            return
        run = self._running[uid] = CallRun(uid, self._db, self._find)
        task = asyncio.create_task(self._carry(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self, uid: UUID) -> None:
        if run := self._running.get(uid):
            run.cancel()

    @property
    def uids(self) -> set[UUID]:
        return set(self._running)

    async def settle(self, seconds: float) -> None:
        """Wait until every outcome is committed, or the time is over."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=max(0.0, seconds))

    async def _carry(self, run: "CallRun") -> None:
        try:
            await run.carry()
        except DatabaseAway:
            self._counters["database_away"] += 1
        except Exception:  # a fault of ours in one call must not end the others; the tick ends the row
            log.exception("host.call_failed", call=str(run.uid))
        finally:
            del self._running[run.uid]


class CallRun:
    def __init__(self, uid: UUID, db: Database, find: FindSession) -> None:
        self.uid = uid
        self._db, self._find = db, find
        self._sending: asyncio.Task[ToolResult] | None = None
        self._cancelled = False
        self._words = ""

    def cancel(self, words: str = "") -> None:
        """Ends the request at the server as its era wants it; an answer that came first counts."""
        self._cancelled, self._words = True, words
        if self._sending is not None:
            self._sending.cancel()

    async def carry(self) -> None:
        order = await self._db.read(partial(claims.read_order, self.uid))
        live = None if order is None else self._find(order.session_id)
        if order is None or live is None:
            return
        async with live.slot(self) as admitted:
            if not admitted or not live.accepting or self._cancelled:
                return
            if await self._db.write(partial(claims.claim, order, live.hold), list):
                await self._answer(order, live)

    async def _answer(self, order: Order, live: Live) -> None:
        try:
            outcome = await self._perform(order, live)
        except Exception as exc:  # the row is claimed: whatever went wrong on our side, it needs its end
            log.exception("host.call_broke", call=str(self.uid))
            outcome = outcomes.of_fault_of_ours(exc)
        await self._db.persist(partial(claims.finish, order, live.hold, outcome), list)

    async def _perform(self, order: Order, live: Live) -> Outcome:
        tool = _definition(order)
        progress = Progress(self._db, order, live.hold, live.redactor)
        try:
            result = await self._send(order, live, tool, progress)
        except McpError as error:
            if error.fault is Fault.UNAUTHORIZED:
                live.suspect(error)
            return outcomes.of_error(error, live.redactor)
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            return outcomes.cancelled(self._words)
        finally:
            progress.close()
        return outcomes.of_answer(result, live.redactor, await _violation(tool, result))

    async def _send(self, order: Order, live: Live, tool: Mapping[str, Any], progress: Progress) -> ToolResult:
        timeouts = live.launch.timeouts
        schema = tool.get("inputSchema")
        self._sending = asyncio.create_task(
            live.client.call_tool(
                order.tool,
                outcomes.arguments_of(order.arguments),
                timeout=timeouts.tool,
                total_timeout=timeouts.total,
                on_progress=progress,
                before_send=partial(self._before_send, order, live),
                input_schema=schema if isinstance(schema, dict) else None,
                tag=order,
                meta=_trace(order) if live.modern else None,
            )
        )
        if self._cancelled:
            self._sending.cancel()
        return await self._sending

    async def _before_send(self, order: Order, live: Live, number: int, reason: str) -> None:
        """The first attempt was committed with the claim; each further one is committed before its bytes leave."""
        if number == 1:
            return
        try:
            recorded = await self._db.write(partial(claims.attempt, order, live.hold, number, reason), list)
        except DatabaseAway as exc:
            raise NotReady("A further attempt could not be recorded, so it was not made.") from exc
        if not recorded:
            raise NotReady("The call was ended meanwhile, so it was not sent again.")


def _trace(order: Order) -> dict[str, str]:
    """W3C trace context (2026-07-28, `_meta`): the call's uid is the trace, so a server's own traces lead to its row."""
    return {"traceparent": f"00-{order.uid.hex}-{secrets.token_hex(8)}-01"}


def _definition(order: Order) -> Mapping[str, Any]:
    """The tool as the server described it last; empty when it is not in the list any more."""
    body = json.loads(order.definition) if order.definition else {}
    return body if isinstance(body, dict) else {}


async def _violation(tool: Mapping[str, Any], result: ToolResult) -> str:
    """How a structured result breaks the tool's own output schema, in words; empty when it does not."""
    schema = tool.get("outputSchema")
    if not isinstance(schema, dict) or result.is_error:
        return ""
    if "structuredContent" not in result.raw:
        return "The tool declares an output schema and sent no structured content."
    verdict = await checker.shared().acheck(schema, result.structured)
    return "\n".join(f"{where or '/'}: {' '.join(words)}" for where, words in verdict.errors.items())
