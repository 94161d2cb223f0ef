"""Operations of a socket besides topics: placing and cancelling calls. Each answer carries the `ref` of its request."""

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.core.exceptions import PermissionDenied
from django.http import Http404

from servers import limits
from sessions.calls import placing, visibility
from sessions.calls.placing import AuditUnavailable, Rejected, SubmittedArguments
from sessions.live.call_frames import card_html
from sessions.live.hub import Hub
from sessions.live.reader import Reader
from sessions.live.socket import Socket
from sessions.mcp.core.methods import TOOLS_CALL
from sessions.models import Call

_NO_CALL = "This call does not exist."
_BUSY = (
    f"Too many calls are being sent from this page. {limits.stated('socket_calls_in_flight')} Wait for them to finish."
)
#: the viewer of a suspended socket still has the permissions from before the change
_SUSPENDED = "Your permissions are being checked. Try again in a moment."
log = structlog.get_logger(__name__)


class _Malformed(Exception):
    """The message violates the protocol; the text says what is missing."""


async def call(hub: Hub, socket: Socket, body: Mapping[str, Any]) -> None:
    """Place a call. With "follow" the socket also joins the call's topic."""
    ref = body.get("ref")
    if socket.suspended:
        return socket.send(_rejected(ref, _SUSPENDED))
    if socket.busy:
        return socket.send(_rejected(ref, _BUSY))
    socket.calls_in_flight += 1
    try:
        answer = await _placed(hub.reader, socket, body)
        if "call" in answer and body.get("follow") is True:
            answer["followed"] = hub.follow(socket, UUID(answer["call"]), answer["version"])
        socket.send(answer)
    finally:
        socket.calls_in_flight -= 1


async def _placed(reader: Reader, socket: Socket, body: Mapping[str, Any]) -> dict[str, Any]:
    ref = body.get("ref")
    try:
        server, target, given = _uid(body.get("server")), _target(body), _given(body)
        place = partial(
            placing.aplace,
            begin=reader.begin_run,
            begin_slow=reader.begin_work,
            method=str(body.get("method", TOOLS_CALL)),
        )
        placed = await place(socket.actor, socket.viewer.user, server, target, given)
        html = "" if body.get("html") is False else await reader.run(partial(card_html, placed, True))
    except Rejected as problem:
        return _rejected(ref, problem.message, problem.errors, problem.confirm)
    except (AuditUnavailable, PermissionDenied, Http404, _Malformed) as problem:
        return _rejected(ref, str(problem) or "You don't have permission to call this server.")
    except Exception:  # the page waits for an answer, so it gets one for any failure; the log has the reason
        log.exception("live.call_failed")
        return _rejected(ref, "mcpadmin failed to start the call. Check the history before running it again.")
    return {
        "op": "accepted",
        "ref": ref,
        "call": str(placed.uid),
        "number": placed.pk,
        "version": placed.version,
        "topic": f"call.{placed.uid}",
        "html": html,
    }


async def cancel(reader: Reader, socket: Socket, body: Mapping[str, Any]) -> None:
    ref = body.get("ref")
    if socket.suspended:
        return socket.send(_rejected(ref, _SUSPENDED))
    try:
        uid = _uid(body.get("call"))
        seen = visibility.visible_q(socket.viewer.user)
        found = await reader.run(lambda: Call.objects.select_related("server").filter(seen, uid=uid).first())
        if found is None:
            return socket.send(_rejected(ref, _NO_CALL))
        asked = await reader.work(partial(placing.cancel, socket.actor, socket.viewer.user, found))
    except (AuditUnavailable, PermissionDenied, _Malformed) as problem:
        return socket.send(_rejected(ref, str(problem)))
    except Exception:  # as for a call
        log.exception("live.cancel_failed")
        return socket.send(_rejected(ref, "mcpadmin failed to cancel the call. Try again."))
    socket.send({"op": "cancelling" if asked else "cancelled", "ref": ref, "call": str(uid)})


def _rejected(
    ref: Any, message: str, errors: Mapping[str, list[str]] | None = None, confirm: str = ""
) -> dict[str, Any]:
    body = {"op": "rejected", "ref": ref, "message": message, "errors": dict(errors or {})}
    return body | {"confirm": confirm} if confirm else body


def _given(body: Mapping[str, Any]) -> SubmittedArguments:
    confirm, as_task = body.get("confirm", ""), body.get("task") is True
    unchecked, anyway = body.get("unchecked") is True, body.get("anyway") is True
    if isinstance(form := body.get("form"), dict):
        fields = {
            str(name): [str(value) for value in values] for name, values in form.items() if isinstance(values, list)
        }
        confirm = confirm or next(iter(fields.get("_confirm", [])), "")
        return SubmittedArguments(form=fields, confirm=confirm, as_task=as_task, unchecked=unchecked, anyway=anyway)
    if isinstance(text := body.get("json"), str):
        return SubmittedArguments(text=text, confirm=confirm, as_task=as_task, unchecked=unchecked, anyway=anyway)
    if "args" in body:
        return SubmittedArguments(
            value=body["args"], confirm=confirm, as_task=as_task, unchecked=unchecked, anyway=anyway
        )
    raise _Malformed("The message carries no arguments.")


def _uid(value: Any) -> UUID:
    try:
        return UUID(str(value))
    except ValueError as problem:
        raise _Malformed("The message names no server or call.") from problem


def _target(body: Mapping[str, Any]) -> str:
    """`target` for every method. `tool` is its older name."""
    value = body.get("target", body.get("tool"))
    if not isinstance(value, str) or not value:
        raise _Malformed("The message names no tool." if "tool" in body else "The message names no target.")
    return value
