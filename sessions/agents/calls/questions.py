"""Requests of a server that the agent itself can answer. Each is also a row of the inbox: the first answer, from the
agent or from a person, settles it.

A legacy agent receives them as requests on the stream of its call. For a modern agent the call returns *input
required*, with a state that links its retry to the same call, so nothing is sent twice. If a modern server receives
the agent's own capabilities, its *input required* is passed on unchanged. That call has then ended, and the retry is a
further call that continues it. Each call is continued only once, even if the retry arrives twice.
"""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.core import signing

from servers.enums import AgentScope
from sessions.agents import agent_sessions
from sessions.agents.call_request import CallRequest, answerable
from sessions.agents.exchange import Exchange
from sessions.calls import agent_calls
from sessions.calls.arguments import SubmittedArguments
from sessions.enums import QuestionKind, QuestionState
from sessions.inbox import answering, reads
from sessions.inbox.answering import Action, Unfit
from sessions.mcp.core import jsonrpc
from sessions.mcp.core.capabilities import declares, elicitation_modes
from sessions.mcp.core.jsonrpc import Response
from sessions.mcp.core.versions import REVISIONS, Era
from sessions.mcp.server import rewriting
from sessions.mcp.server.refusals import invalid_params
from sessions.models import AgentCall, AgentRound, Question

STATE_SECONDS: Final = 900
ANSWERS: Final = 100
_SALT: Final = "mcpadmin.agents.state"
_ID: Final = "question:"
_ACTIONS: Final[dict[str, Action]] = {"accept": "accept", "decline": "decline", "cancel": "cancel"}


@dataclass(frozen=True)
class Relayed:
    uid: UUID
    method: str
    params: dict[str, Any]

    @property
    def key(self) -> str:
        return f"{_ID}{self.uid}"


def open_of(exchange: Exchange, call_pk: int) -> list[Relayed]:
    """Open requests of a call that this agent declared it can answer and its owner may answer. Others wait for people.
    Call it in a thread."""
    mine = answerable(exchange)
    rows = Question.objects.filter(call_id=call_pk, state=QuestionState.OPEN).select_related("question").order_by("pk")
    return [Relayed(row.uid, row.method, _params(exchange, row)) for row in rows if _answers(mine, row)]


def _answers(answerable: Mapping[str, Any], row: Question) -> bool:
    if row.kind == QuestionKind.SAMPLING:
        return declares(answerable, "sampling")
    return ("url" if row.kind == QuestionKind.URL else "form") in elicitation_modes(answerable)


def _params(exchange: Exchange, row: Question) -> dict[str, Any]:
    """The parameters as the server sent them, without `_meta`, which is only between the server and us."""
    params = {name: value for name, value in reads.params_of(row).items() if name != "_meta"}
    if not REVISIONS[exchange.revision].elicitation_url and params.get("mode") == "form":
        del params["mode"]
    return params if exchange.via is None else rewriting.request(params, exchange.via.outward)


# --- legacy ------------------------------------------------------------------------------------------------------------
def request(relayed: Relayed) -> bytes:
    return jsonrpc.request(relayed.key, relayed.method, relayed.params)


def answered(exchange: Exchange, response: Response) -> None:
    """Settle a request with the agent's response, which may arrive at another web process than the request's. A
    response to anything else is ignored. Raises Unfit for an answer that cannot be sent to the server: the request is
    dismissed then, because the agent does not answer twice."""
    if not isinstance(response.id, str) or not response.id.startswith(_ID) or exchange.session is None:
        return
    with suppress(ValueError):
        calls = agent_sessions.calls_of(exchange.session.pk).values("call_id")
        row = Question.objects.filter(uid=UUID(response.id.removeprefix(_ID)), call__in=calls).first()
        if row is not None:
            try:
                _settle(exchange, row, response.result)
            except Unfit as problem:
                why = f"The agent's answer was not valid. {problem.message}"
                answering.dismiss(exchange.actor, exchange.entry.principal.user, row, why)
                raise


# --- modern ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Continuation:
    """A further call: the retry of a request whose call ended with the server's *input required*. `agent_call`: the
    call that it continues, None for a first request that already has answers. `added`: parameters that are sent to the
    server."""

    agent_call: int | None
    added: dict[str, Any]


def continues(exchange: Exchange) -> bool:
    """Whether this request answers questions of an earlier call."""
    return not exchange.params.keys().isdisjoint({"requestState", "inputResponses"})


def input_required(exchange: Exchange, asked: CallRequest, call: UUID, inputs: Mapping[str, Any] | None) -> bytes:
    """The response that asks for input. `inputs`: in protocol format; None to return only a state."""
    token = exchange.entry.principal.token.pk
    result: dict[str, Any] = {"resultType": "input_required"}
    if inputs:
        result["inputRequests"] = inputs
    nonce = secrets.token_urlsafe(6)  # each round has its own state
    result["requestState"] = signing.dumps([str(call), token, asked.same(exchange), nonce], salt=_SALT)
    return jsonrpc.result(exchange.id, result)


def inputs_of(relayed: list[Relayed]) -> dict[str, Any]:
    return {one.key: {"method": one.method, "params": one.params} for one in relayed}


def continued(exchange: Exchange, asked: CallRequest) -> UUID | Continuation:
    """What a retry (see `continues`) continues: the id of a call, running or ended, whose questions it settled, or a
    further call. Raises Refusal. Call it in a thread."""
    params = exchange.params
    responses = params.get("inputResponses", {})
    if not isinstance(responses, dict):
        raise invalid_params("inputResponses must be an object.")
    if "requestState" not in params and one_exchange(exchange):
        return Continuation(None, {"inputResponses": _answered(responses)})
    call = _call_of(exchange, asked, params.get("requestState"))
    agent_call = AgentCall.objects.filter(call__uid=call).first()
    if agent_call is None:
        raise invalid_params("The call of this requestState no longer exists. Call again without it.")
    later: UUID | None = AgentCall.objects.filter(continues=agent_call.pk).values_list("call__uid", flat=True).first()
    if later is not None:
        return later
    if (back := AgentRound.objects.filter(call_id=agent_call.call_id, back=True).first()) is not None:
        given = {"inputResponses": _answered(responses)} if "inputResponses" in params else {}
        return Continuation(agent_call.pk, {**given, **agent_calls.opened(back)})
    _settle_all(exchange, call, responses)
    return call


def one_exchange(exchange: Exchange) -> bool:
    """Whether a modern server receives the agent's own capabilities and asks only the agent. Otherwise people may
    answer too, and the server receives our capabilities."""
    return exchange.era is Era.MODERN and not exchange.entry.principal.has(AgentScope.INBOX.value)


def _answered(responses: Mapping[str, Any]) -> dict[str, Any]:
    """Raises Refusal for values that are not answers."""
    if len(responses) > ANSWERS:
        raise invalid_params(f"inputResponses has more than {ANSWERS} entries.")
    if wrong := [key[:80] for key, value in responses.items() if not isinstance(value, dict)]:
        raise invalid_params(f"inputResponses: {wrong[0]} must be an object.")
    return dict(responses)


def _settle_all(exchange: Exchange, call: UUID, responses: Mapping[str, Any]) -> None:
    rows = {f"{_ID}{row.uid}": row for row in Question.objects.filter(call__uid=call, state=QuestionState.OPEN)}
    for key, value in responses.items():
        if key in rows:
            try:
                _settle(exchange, rows[key], value)
            except Unfit as problem:
                raise invalid_params(problem.message, {"errors": problem.errors}) from problem


def _call_of(exchange: Exchange, asked: CallRequest, state: Any) -> UUID:
    """The call that the state refers to. The state is signed, and valid only for this token, this request and 15
    minutes."""
    token = exchange.entry.principal.token.pk
    try:
        call, owner, same, _ = signing.loads(str(state), salt=_SALT, max_age=STATE_SECONDS)
    except signing.BadSignature as problem:
        raise invalid_params("requestState is missing, altered or expired. Nothing was sent.") from problem
    if (owner, same) != (token, asked.same(exchange)):
        raise invalid_params("requestState belongs to another request. Nothing was sent.")
    return UUID(call)


# --- both --------------------------------------------------------------------------------------------------------------
def _settle(exchange: Exchange, row: Question, value: Mapping[str, Any] | None) -> None:
    """`value`: the result in protocol format; None for an error. Raises Unfit."""
    if row.kind == QuestionKind.SAMPLING:
        action: Action = "decline" if value is None else "accept"
        content = value
    elif value is None:
        action, content = "cancel", None
    elif not isinstance(value, Mapping) or not isinstance(named := value.get("action"), str) or named not in _ACTIONS:
        raise Unfit("An answer must have an action: accept, decline or cancel.")
    else:
        action, content = _ACTIONS[named], value.get("content")
    given = SubmittedArguments(value=content if content is not None else {}) if action == "accept" else None
    answering.answer(exchange.actor, exchange.entry.principal.user, row, action, given)
