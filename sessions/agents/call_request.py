"""Turns an agent's request into a call in the ledger: target, arguments, scope. Raises Refusal for an invalid one."""

import json
from dataclasses import dataclass
from typing import Any, Final

from django.utils.crypto import salted_hmac

from servers import access
from servers.agents.addresses import slug_of
from servers.agents.oauth import metadata
from servers.enums import AgentScope, DefinitionKind
from sessions.agents.exchange import Exchange
from sessions.calls.operations import completion_target
from sessions.mcp.core import methods
from sessions.mcp.core.capabilities import declares, elicitation_modes
from sessions.mcp.core.versions import REVISIONS
from sessions.mcp.server.refusals import FORBIDDEN, Refusal, invalid_params

_ABSENT: Final = object()
_NO_KIND: Final = (None, "")
_KINDS: Final[dict[str, tuple[DefinitionKind | None, str]]] = {
    "ref/prompt": (DefinitionKind.PROMPT, "name"),
    "ref/resource": (DefinitionKind.RESOURCE_TEMPLATE, "uri"),
}


@dataclass(frozen=True)
class CallRequest:
    """`target` and `arguments`: as in `sessions.calls.operations`."""

    method: str
    target: str
    arguments: dict[str, Any]

    def same(self, exchange: Exchange) -> str:
        """A digest that is equal for two requests with one token that ask a server for the same thing, regardless of
        the order of object members. It is keyed, so arguments cannot be guessed from it."""
        token, server = exchange.entry.principal.token.pk, exchange.entry.endpoint.server.pk
        text = json.dumps([server, self.method, self.target, self.arguments], sort_keys=True, ensure_ascii=False)
        return salted_hmac(f"mcpadmin.agents.same.{token}", text, algorithm="sha256").hexdigest()


def call_request_of(exchange: Exchange) -> CallRequest:
    return _READERS[exchange.method](exchange)


def answerable(exchange: Exchange) -> dict[str, Any]:
    """The agent's capabilities that a server may use: those that it declared, that its revision has, that its token
    allows and that its user may provide. Nothing else from its declaration is passed on. Call it in a thread."""
    principal, declared, revision = exchange.entry.principal, exchange.capabilities, REVISIONS[exchange.revision]
    found: dict[str, Any] = {}
    modes = elicitation_modes(declared) if revision.elicitation else frozenset()
    if not revision.elicitation_url:  # programs declare everything they support before a revision is negotiated
        modes -= {"url"}
    may_answer = access.may(principal.user, "answer_question")
    if modes and may_answer:
        found["elicitation"] = {mode: {} for mode in sorted(modes)}
    if declares(declared, "sampling") and may_answer and principal.has(AgentScope.SAMPLING.value):
        known = ("context", "tools") if revision.sampling_tools else ()
        features = (name for name in known if declares(declared, "sampling", name))
        found["sampling"] = {name: {} for name in features}
    if declares(declared, "roots"):
        found["roots"] = {}
    return found


def require_scope_of_call(exchange: Exchange) -> None:
    """Require the scope for a request that becomes a call. Raises Refusal (403)."""
    require_scope(exchange, AgentScope.CALL if exchange.method == methods.TOOLS_CALL else AgentScope.READ)


def require_scope(exchange: Exchange, scope: AgentScope) -> None:
    """Raises Refusal (403)."""
    token = exchange.entry.principal.token
    if not exchange.entry.principal.has(scope.value):
        wanted = " ".join([*token.scopes, scope.value])  # all it will need from now on: clients request exactly this
        slug = slug_of(token.resource) or exchange.entry.place.slug
        challenge = metadata.challenge(slug, "insufficient_scope", wanted)
        words = f"This token does not have the scope {scope.value}. Its owner can create one with this scope on the Agents page."
        raise Refusal(
            403, FORBIDDEN, words, {"requiredScope": scope.value}, headers={"WWW-Authenticate": challenge}
        ).of(exchange.id)


def _tool(exchange: Exchange) -> CallRequest:
    require_scope(exchange, AgentScope.CALL)
    name = text_of(exchange, "name")
    if not exchange.entry.principal.may_use(name):
        raise unknown_tool(name)
    return CallRequest(exchange.method, name, _arguments(exchange))


def unknown_tool(name: str) -> Refusal:
    return invalid_params(f"Unknown tool: {name[:200]}")


def _resource(exchange: Exchange) -> CallRequest:
    require_scope(exchange, AgentScope.READ)
    return CallRequest(exchange.method, text_of(exchange, "uri"), {})


def _prompt(exchange: Exchange) -> CallRequest:
    require_scope(exchange, AgentScope.READ)
    return CallRequest(exchange.method, text_of(exchange, "name"), _arguments(exchange))


def _completion(exchange: Exchange) -> CallRequest:
    require_scope(exchange, AgentScope.READ)
    ref, argument = exchange.params.get("ref"), exchange.params.get("argument")
    named = ref if isinstance(ref, dict) else {}
    kind, name = _KINDS.get(str(named.get("type")), _NO_KIND)
    key = named.get(name)
    if kind is None or not isinstance(key, str) or "\0" in key or not isinstance(argument, dict):
        raise invalid_params(
            "completion/complete needs ref (ref/prompt with name, or ref/resource with uri) and argument."
        )
    context = exchange.params.get("context")
    arguments = {"argument": argument} | ({"context": context} if isinstance(context, dict) else {})
    return CallRequest(exchange.method, completion_target(kind, key), arguments)


def text_of(exchange: Exchange, name: str) -> str:
    """Raises Refusal. Database text cannot contain NUL."""
    value = exchange.params.get(name)
    if not isinstance(value, str) or not value or "\0" in value:
        raise invalid_params(f"{exchange.method} needs params.{name}, a string without NUL characters.")
    return value


def _arguments(exchange: Exchange) -> dict[str, Any]:
    """Clients omit the arguments, or send null, if there are none."""
    value = exchange.params.get("arguments", _ABSENT)
    if value is _ABSENT or value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid_params("params.arguments must be an object.")
    return value


_READERS: Final = {
    methods.TOOLS_CALL: _tool,
    methods.RESOURCES_READ: _resource,
    methods.PROMPTS_GET: _prompt,
    methods.COMPLETE: _completion,
}
#: the methods whose requests become calls
CALLED: Final = frozenset(_READERS)
