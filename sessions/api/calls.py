"""Calls: started in the ledger as those of every agent, found by the explorer's query language, and waited for."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Annotated, Any, Final
from uuid import UUID

from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from ninja import Header, Query, Router
from ninja.responses import NinjaJSONEncoder

from servers import permissions
from servers.audit import payloads
from servers.enums import AgentScope
from servers.models import Payload, Server
from servers.requests import WebRequest
from sessions.agents.asgi import requests, shared
from sessions.agents.calls import idempotency
from sessions.agents.endpoints import entry_of
from sessions.agents.exchange import Exchange
from sessions.agents.policy.admission import no_longer_valid
from sessions.agents.policy.policy_check import policy_owner_of
from sessions.api.asking import Caller, caller_of, work
from sessions.api.mount import URLCONF
from sessions.api.problems import Problem, not_found
from sessions.api.shapes import CallError, CallIn, CallOut, CallPage, CallProgress, CallRow
from sessions.calls import placing, visibility
from sessions.calls.card import without_words
from sessions.calls.payload_readings import record_reading
from sessions.enums import CallState
from sessions.explorer import language, search
from sessions.explorer.language import Term, Value
from sessions.explorer.rows import Row
from sessions.mcp.core import methods
from sessions.mcp.core.versions import Era
from sessions.models import Call

router = Router(tags=["calls"])
MOST: Final = 100
WAIT_SECONDS: Final = 30
#: after this time, the row is read even without a hint
_LOOK_SECONDS: Final = 5.0
_REVISION: Final = "2025-11-25"
#: more servers than this are checked row by row
_NAMED: Final = 40
Key = Annotated[str, Header(alias="Idempotency-Key", min_length=1, max_length=idempotency.KEY_CHARS)]
Wait = Annotated[
    float, Query(ge=0, le=WAIT_SECONDS, description="How many seconds to wait for the call to end before answering.")
]


# --- start -------------------------------------------------------------------------------------------------------------
@router.post(
    "/servers/{slug}/calls", response={200: CallOut, 202: CallOut}, operation_id="start_call", summary="Start a call"
)
async def start(request: WebRequest, slug: str, given: CallIn, key: Key, wait: Wait = 0) -> HttpResponse:
    """Call a tool once. The response is 202 while the call is running and 200 when it has ended.

    The same `Idempotency-Key` with the same tool and arguments returns the earlier call, whatever its outcome; with
    another tool or other arguments it is a conflict (409). Scope `mcp:call`. Where a rule says *Ask*, the call is
    `held` until a person approves it. So is a call to a destructive tool, unless the token has the scope
    `mcp:call:destructive`.
    """
    caller = caller_of(request)
    caller.require(AgentScope.CALL)
    if caller.only not in ("", slug):
        raise not_found("server")
    async with shared().admission.flight(caller.principal):
        entry = await work(entry_of, caller.principal, slug, "")
        exchange = Exchange(
            entry=entry,
            era=Era.LEGACY,
            revision=_REVISION,
            id=0,
            method=methods.TOOLS_CALL,
            params={"name": given.tool, "arguments": given.arguments},
            headers={idempotency.KEY_HEADER: key},
            address=caller.address,
            request_id=caller.request_id,
            program=caller.program,
        )
        async with shared().admission.at(policy_owner_of(entry.place)):
            uid = await requests().start(exchange)
        found = await _waited(caller, uid, wait)
    response = found.response(200 if found.final else 202)
    response["Location"] = reverse("api-1:get_call", URLCONF, args=[uid])
    return response


async def _waited(caller: Caller, uid: UUID, seconds: float) -> "_CallText":
    """The call when it is over, or after this time. Raises Refusal (401) soon after the token was revoked."""
    wake = asyncio.Event()
    stop = shared().hub.watch(f"call.{uid}", lambda _: wake.set())
    ends = asyncio.get_running_loop().time() + seconds
    try:
        while not await work(_is_final, uid) and (left := ends - asyncio.get_running_loop().time()) > 0:
            wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, _LOOK_SECONDS)):
                    await wake.wait()
            if not await shared().stream_reads.tokens.get(caller.principal.token.pk):
                raise no_longer_valid(None)
    finally:
        stop()
    return await work(_detail, caller, uid)


def _is_final(uid: UUID) -> bool:
    state = Call.objects.filter(uid=uid).values_list("state", flat=True).first()
    return state is None or CallState(state).final


# --- find --------------------------------------------------------------------------------------------------------------
@router.get("/calls", response=CallPage, operation_id="list_calls", summary="Search calls")
async def index(
    request: WebRequest,
    q: Annotated[str, Query(max_length=language.TEXT_CHARS, description="In the query language of the explorer.")] = "",
    cursor: Annotated[str, Query(max_length=400)] = "",
    limit: Annotated[int, Query(ge=1, le=MOST)] = 50,
) -> CallPage:
    """Calls that the token's owner can see, on servers that the token has access to, newest first. Scope
    `mcp:history`."""
    caller = caller_of(request)
    caller.require(AgentScope.HISTORY)
    return await work(_page, caller, q, cursor, limit)


def _page(caller: Caller, text: str, cursor: str, limit: int) -> CallPage:
    permissions.require(caller.user, caller.actor, "view")
    if cursor and "calls" not in search.Boundary.read(cursor).keys:
        raise Problem(422, "invalid-cursor", "This cursor does not belong to this list. Start again without it.")
    query = language.parse(text, timezone.now().astimezone(UTC))
    query = replace(query, streams=frozenset({"calls"}))
    reached = _reached(caller)
    if reached is not None and len(reached) <= _NAMED:
        term = Term("server", tuple(Value(str(server.uid)) for server in reached))
        query = replace(query, terms=(*query.terms, term))
    found = search.page(caller.user, query, cursor, limit)
    seen = None if reached is None else {str(server.uid) for server in reached}
    rows = [row for row in found.rows if seen is None or row.server_uid in seen]
    return CallPage(items=[_row(row) for row in rows], next=found.older or None, searched_to=found.searched_to)


def _reached(caller: Caller) -> list[Server] | None:
    """None: all, also calls of servers that were deleted."""
    return None if caller.principal.server_ids is None and not caller.only else list(caller.read_servers())


def _row(row: Row) -> CallRow:
    return CallRow(
        id=UUID(row.call_uid),
        server=row.server_name,
        target=row.target,
        kind=row.kind,
        user=row.who,
        way=row.way,
        identity=row.identity,
        state=row.status,
        outcome=row.outcome,
        requested_at=row.at,
        duration_ms=row.duration_ms,
        bytes=row.bytes,
    )


# --- one ---------------------------------------------------------------------------------------------------------------
@router.get("/calls/{uuid:uid}", response=CallOut, operation_id="get_call", summary="Get a call", url_name="get_call")
async def detail(request: WebRequest, uid: UUID, wait: Wait = 0) -> HttpResponse:
    """One call, with its arguments and result if the token's owner can read them. A call made with this token needs the
    scope `mcp:call`, any other call `mcp:history`."""
    caller = caller_of(request)
    caller.require(AgentScope.CALL, AgentScope.HISTORY)
    await work(_visible, caller, uid)
    async with shared().admission.flight(caller.principal):
        found = await _waited(caller, uid, wait)
    return found.response()


@router.post("/calls/{uuid:uid}/cancel", response=CallOut, operation_id="cancel_call", summary="Cancel a call")
async def cancel(request: WebRequest, uid: UUID) -> HttpResponse:
    """Ask the server to cancel the call. It is unknown whether the tool stopped. Scope `mcp:call`, only for
    calls made with this token."""
    caller = caller_of(request)
    caller.require(AgentScope.CALL)
    return (await work(_cancel, caller, uid)).response()


def _cancel(caller: Caller, uid: UUID) -> "_CallText":
    call = _visible(caller, uid)
    if not _is_own(caller, call):
        token = str(caller.principal.token.uid)
        permissions.record_refusal(
            caller.actor, call.server, call.target[:300], permission="cancel a call of another token", token=token
        )
        raise Problem(403, "forbidden", "Only the token that started a call can cancel it here.")
    placing.cancel(caller.actor, caller.user, call)
    return _detail(caller, uid)


def _visible(caller: Caller, uid: UUID) -> Call:
    """Raises Problem (404) for one that the person or the token may not see."""
    rows = visibility.visible(caller.user).select_related("server", "arguments", "result", "agent")
    call = rows.filter(uid=uid).first()
    if call is None:
        raise not_found("call")
    if not _is_own(caller, call) and not (
        caller.principal.has(AgentScope.HISTORY.value) and caller.reaches(call.server)
    ):
        raise not_found("call")
    return call


def _is_own(caller: Caller, call: Call) -> bool:
    return hasattr(call, "agent") and call.agent.token_id == caller.principal.token.pk


@dataclass(frozen=True)
class _CallText:
    """A call as JSON text, made in a thread: as values, a result of megabytes would hold up the loop."""

    final: bool
    text: bytes

    def response(self, status: int = 200) -> HttpResponse:
        return HttpResponse(self.text, status=status, content_type="application/json; charset=utf-8")


def _detail(caller: Caller, uid: UUID) -> _CallText:
    call = _visible(caller, uid)
    state = CallState(call.state)
    readable = visibility.may_read(caller.user, call)
    if readable:
        record_reading(caller.actor, call, call.arguments, call.result)
    if state.final and _is_own(caller, call) and call.agent.unheard_at is not None:
        idempotency.mark_approval_delivered(uid)
    failed = state is CallState.RPC_ERROR
    words = call if readable else without_words(call)
    shown = CallOut(
        id=call.uid,
        server=call.server.slug if call.server is not None else None,
        server_name=call.server_name,
        target=call.target,
        method=call.method,
        user=call.user_name,
        program=call.agent.program if hasattr(call, "agent") else "",
        way=call.way,
        identity=call.identity_name,
        state=state,
        final=state.final,
        may_have_run=call.effect_unknown,
        requested_at=call.created_at,
        sent_at=call.sent_at,
        finished_at=call.finished_at,
        duration_ms=call.duration_ms,
        detail=words.detail,
        error=CallError(code=call.error_code, message=words.error_message, data=_json(words.error_data))
        if failed
        else None,
        progress=None
        if call.progress is None
        else CallProgress(progress=call.progress, total=call.progress_total, message=words.progress_message),
        readable=readable,
        arguments=None,  # these two are added as text
        result=None,
    )
    members = json.dumps(shown.model_dump(exclude={"arguments", "result"}), cls=NinjaJSONEncoder).encode()
    arguments, result = (_stored_json(found) if readable else b"null" for found in (call.arguments, call.result))
    return _CallText(state.final, members[:-1] + b', "arguments": ' + arguments + b', "result": ' + result + b"}")


def _stored_json(found: Payload | None) -> bytes:
    """As stored. A lone surrogate, which UTF-8 cannot encode, is written as its escape."""
    text = payloads.read(found) if found is not None else None
    if not text:
        return b"null"
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(json.loads(text)).encode()


def _json(text: str | None) -> Any:
    """A text that was cut to the length of its column stays a text."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
