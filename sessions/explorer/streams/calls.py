"""Calls of tools, resources, prompts and completions."""

from functools import cache

from django.db.models import Q, QuerySet
from django.db.models.lookups import Exact
from django.urls import reverse

from servers import access
from sessions.calls import visibility
from sessions.enums import CallState
from sessions.explorer.fulltext import Match
from sessions.explorer.language import FREE_TEXT, Query, Term
from sessions.explorer.rows import Row
from sessions.explorer.streams.stream import (
    ARMS,
    NOTHING,
    OUTCOMES,
    Arm,
    Stream,
    accounts,
    any_of,
    at_least,
    deleted_servers,
    exact_outcomes,
    few,
    literally,
    matching,
    names,
    numbers,
    only_own,
    plain,
    servers,
    texts,
    uids,
)
from sessions.mcp.core.methods import COMPLETE, PROMPTS_GET, RESOURCES_READ, TOOLS_CALL
from sessions.models import Call, McpSession
from sessions.models.call import LARGE_BYTES, SLOW_MS, Head

OUTCOME_OF_STATE: dict[str, str] = {
    CallState.HELD: "running",
    CallState.REQUESTED: "running",
    CallState.SENT: "running",
    CallState.SUCCEEDED: "ok",
    CallState.TOOL_ERROR: "error",
    CallState.RPC_ERROR: "error",
    CallState.FAILED: "error",
    CallState.CANCELLED: "cancelled",
    CallState.OUTCOME_UNKNOWN: "unknown",
    CallState.NOT_SENT: "not_sent",
    CallState.REFUSED: "denied",
    CallState.EXPIRED: "not_sent",
}
#: kind of a call -> method
METHODS = {"tool": TOOLS_CALL, "resource": RESOURCES_READ, "prompt": PROMPTS_GET, "completion": COMPLETE}
KIND_OF_METHOD = {method: kind for kind, method in METHODS.items()}
_SLOW = literally(f'"mcp_sessions_call"."duration_ms" >= {SLOW_MS}')
_LARGE = literally(f'"mcp_sessions_call"."total_bytes" >= {LARGE_BYTES}')


class Calls(Stream):
    name, label, model, at = "calls", "Calls", Call, "created_at"
    columns = (
        *("server_id", "server_name", "target", "user_id", "user_name", "identity_name", "way", "method", "state"),
        *("duration_ms", "total_bytes", "uid", "session_id", "personal", "created_at"),
    )

    outcome = "state"
    facets = {
        "outcome": "state",
        "server": "server_name",
        "tool": "target",
        "user": "user_name",
        "way": "way",
        "kind": "method",
    }
    server_then = ("server_id", "pk")

    def visible(self, user: access.User) -> QuerySet[Call] | None:
        if not access.may(user, "view"):
            return None
        seen = access.seen_of_people(user, Q(personal=True), Q(plain_user_id=user.pk))
        shown = ("uid", "created_at", "server_name", "target", "method", "user_name", "user_id", "way", "identity_name")
        counted = ("state", "duration_ms", "total_bytes", "preview", "server__uid", "server__name")
        rows = Call.objects.alias(**plain("user_id")).filter(seen)
        return rows.select_related("server").only(*shown, *counted)

    def shown(self, query: Query) -> Q:
        if only_own(query):
            return Q(plain_method=COMPLETE)
        too = query.of("own") or any("completion" in texts(term) for term in query.of("kind"))
        return Q() if too else ~Q(plain_method=COMPLETE)

    def condition(self, term: Term) -> Q:
        match term.field:
            case "server":
                gone = Q(names(term, "plain_server_name"), plain_server_id=None)
                return Q(plain_server_id__in=servers(term).values("pk")) | gone
            case "tool":
                return any_of(
                    [
                        Q(plain_target=value.text) if value.exact else matching("plain_target", value)
                        for value in term.values
                    ]
                )
            case "user":
                gone = Q(names(term, "plain_user_name"), plain_user_id=None)
                return Q(plain_user_id__in=accounts(term).values("pk")) | gone
            case "identity":
                return names(term, "plain_identity_name")
            case "way":
                return Q(plain_way__in=texts(term))
            case "outcome":
                return Q(plain_state__in=exact_outcomes(term, OUTCOME_OF_STATE))
            case "status":
                return Q(plain_state__in=texts(term))
            case "kind":
                return Q(plain_method__in=[METHODS.get(text, text) for text in texts(term)])
            case "duration":
                return numbers(term, "plain_duration_ms")
            case "size":
                return numbers(term, "plain_total_bytes")
            case "call":
                return Q(plain_uid__in=uids(term))
            case "session":
                return Q(session__uid__in=uids(term))
        return NOTHING

    def arms(self, term: Term) -> list[Arm] | None:
        match term.field:
            case "call":
                return [Arm(Q(uid=uid)) for uid in uids(term)]
            case "session":
                keys = McpSession.objects.filter(uid__in=uids(term)).values_list("pk", flat=True)
                return [Arm(Q(session_id=key)) for key in keys[:ARMS]]
            case "tool" if all(value.exact for value in term.values):
                return [Arm(Q(Exact(Head("target"), text[:120])), Q(plain_target=text)) for text in texts(term)]
            case "server":
                found = few(servers(term), "pk")
                gone = Arm(Q(server_id=None), names(term, "plain_server_name"))
                return None if found is None else [*(Arm(Q(server_id=key)) for key in found), gone]
            case "user":
                found = few(accounts(term), "pk")
                gone = Arm(Q(user_id=None), names(term, "plain_user_name"))
                return None if found is None else [*(Arm(Q(user_id=key)) for key in found), gone]
            case "duration" if at_least(term, SLOW_MS):
                return [Arm(_SLOW, numbers(term, "plain_duration_ms"))]
            case "size" if at_least(term, LARGE_BYTES):
                return [Arm(_LARGE, numbers(term, "plain_total_bytes"))]
            case "outcome":
                return [Arm(Q(state=state)) for state in exact_outcomes(term, OUTCOME_OF_STATE)]
            case "status":
                return [Arm(Q(state=state)) for state in texts(term)]
            case "way":
                return [Arm(Q(way=way)) for way in texts(term)]
            case "kind":
                return [Arm(Q(method=METHODS.get(text, text))) for text in texts(term)]
        return None

    def row(self, user: access.User, found: Call) -> Row:
        outcome = OUTCOME_OF_STATE.get(found.state, "")
        readable = visibility.may_read(user, found)
        return Row(
            stream=self.name,
            key=found.pk,
            at=found.created_at,
            server_uid=str(found.server.uid) if found.server else "",
            server_name=found.server_name,
            target=found.target[:300],
            kind=KIND_OF_METHOD.get(found.method, found.method),
            label=found.target[:300],
            who=found.user_name,
            way=found.way,
            identity=found.identity_name,
            outcome=outcome,
            status=found.state,
            status_label=CallState(found.state).label,
            tone=OUTCOMES[outcome][1],
            duration_ms=found.duration_ms,
            bytes=found.total_bytes,
            preview=found.preview if readable else "",
            url=reverse("calls:detail", args=[found.uid]),
            call_uid=str(found.uid),
            own=found.method == COMPLETE,
        )

    def outcome_of(self, exact: str) -> str:
        return OUTCOME_OF_STATE.get(exact, "unknown")

    def facet_value(self, facet: str, stored: str) -> tuple[str, str]:
        return super().facet_value(facet, KIND_OF_METHOD.get(stored, stored) if facet == "kind" else stored[:300])

    def free_text(self, user: access.User, query: Query) -> Match:
        found = [term for term in query.of(FREE_TEXT) if not term.negated]
        without = [term for term in query.of(FREE_TEXT) if term.negated]
        tags = [self._tags(term) for term in query.terms if term.field and not term.negated]
        return Match(
            texts=[term.values[0] for term in found],
            without=[term.values[0] for term in without],
            tags=[alternatives for alternatives in tags if alternatives],
            words=access.may_read_payloads(user),
            own=user.pk,
        )

    def _tags(self, term: Term) -> list[str]:
        """The tags of rows that can match; empty for a term without tags."""
        match term.field:
            case "outcome":
                return [tag(state) for state in exact_outcomes(term, OUTCOME_OF_STATE)] or ["none"]
            case "way" | "status":
                return [tag(text) for text in texts(term)]
            case "kind":
                return [tag(METHODS.get(text, text)) for text in texts(term)]
            case "server" if not deleted_servers(term):  # their calls keep the tag of a key that no longer exists
                found = few(servers(term), "pk")
                return [] if not found else ["server0", *(f"server{key}" for key in found)]
        return []


@cache
def tag(word: str) -> str:
    return "is" + "".join(char for char in word if char.isascii() and char.isalnum())
