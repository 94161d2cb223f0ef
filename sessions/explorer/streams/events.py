"""Audit events that are not steps of a call."""

from uuid import UUID

from django.db.models import Q, QuerySet
from django.urls import reverse

from servers import access
from servers.audit import query as audit
from servers.enums import AuditOutcome
from servers.models import AuditEvent
from servers.models.audit import CALL_STEPS
from sessions.explorer.fulltext import Match
from sessions.explorer.language import FREE_TEXT, Query, Term
from sessions.explorer.rows import Row
from sessions.explorer.streams.stream import (
    ARMS,
    NOTHING,
    Arm,
    Stream,
    accounts,
    deleted_accounts,
    deleted_servers,
    exact_outcomes,
    few,
    literally,
    names,
    servers,
    texts,
    uids,
)

_AUDITED: dict[str, str] = {
    AuditOutcome.OK: "ok",
    AuditOutcome.DENIED: "denied",
    AuditOutcome.FAILED: "error",
    AuditOutcome.TOOL_ERROR: "error",
    AuditOutcome.RPC_ERROR: "error",
    AuditOutcome.CANCELLED: "cancelled",
    AuditOutcome.UNKNOWN: "unknown",
    AuditOutcome.PENDING: "pending",
}

_STEPS = ", ".join(f"'{step}'" for step in CALL_STEPS)
_NO_STEP = literally(f'NOT ("servers_auditevent"."action" IN ({_STEPS}))')


class Events(Stream):
    """Without the steps of calls, which the timeline of their call shows. A query that names steps finds them in
    `Steps`."""

    name, label, model, at = "events", "Events", AuditEvent, "at"
    index = _NO_STEP
    columns = ("server_uid", "server_name", "subject", "actor_name", "identity_name", "outcome", "action", "way", "at")

    outcome = "outcome"
    facets = {"outcome": "outcome", "server": "server_name", "user": "actor_name", "way": "way", "kind": "action"}
    server_then = ("server_uid", "uid")

    def visible(self, user: access.User) -> QuerySet[AuditEvent] | None:
        if not access.may(user, "view_auditevent"):
            return None
        return access.audit_events(user).defer("body", "hash")

    def condition(self, term: Term) -> Q:
        match term.field:
            case "server":
                return Q(plain_server_uid__in=self._server_uids(term))
            case "tool":
                return names(term, "plain_subject")
            case "user":
                found = self._actors(term)
                return names(term, "plain_actor_name") if found is None else Q(plain_actor_name__in=found)
            case "identity":
                return names(term, "plain_identity_name")
            case "way":
                return Q(plain_way__in=texts(term))
            case "outcome":
                return Q(plain_outcome__in=exact_outcomes(term, _AUDITED))
            case "status":
                return Q(plain_outcome__in=texts(term))
            case "kind":
                return Q(plain_action__in=_actions(term))
            case "call":
                return Q(call_uid__in=uids(term))
        return NOTHING

    def arms(self, term: Term) -> list[Arm] | None:
        match term.field:
            case "call":
                return [Arm(Q(call_uid=uid)) for uid in uids(term)]
            case "server":
                found = self._server_uids(term)
                return [Arm(Q(server_uid=uid)) for uid in found] if len(found) <= ARMS else None
            case "user":
                actors = self._actors(term)
                return None if actors is None else [Arm(Q(actor_name=name)) for name in actors]
            case "kind":
                return [Arm(Q(action=action)) for action in _actions(term)]
            case "outcome":
                return [Arm(Q(outcome=outcome)) for outcome in exact_outcomes(term, _AUDITED)]
            case "status":
                return [Arm(Q(outcome=outcome)) for outcome in texts(term)]
        return None

    def _server_uids(self, term: Term) -> list[UUID]:
        return list({*servers(term).values_list("uid", flat=True), *deleted_servers(term), *uids(term)})

    def _actors(self, term: Term) -> list[str] | None:
        """The names, spelled as the accounts are or were; None if there are too many."""
        if not all(value.exact for value in term.values):
            return None
        found = few(accounts(term), "username")
        return None if found is None else list({*found, *deleted_accounts(term), *texts(term)})

    def row(self, user: access.User, found: AuditEvent) -> Row:
        outcome = _AUDITED.get(found.outcome, "")
        return Row(
            stream=self.name,
            key=found.seq,
            at=found.at,
            server_uid=str(found.server_uid) if found.server_uid else "",
            server_name=found.server_name,
            target=found.subject,
            kind=audit.group_of(found.action),
            label=audit.action_word(found.action),
            who=found.actor_name,
            way=found.way or "",
            identity=found.identity_name,
            outcome=outcome,
            status=found.outcome,
            status_label=audit.outcome_word(found.outcome),
            tone=audit.tone(found.outcome),
            duration_ms=None,
            bytes=None,
            preview="",
            url=reverse("audit:detail", args=[found.seq]),
            call_uid=str(found.call_uid) if found.call_uid else "",
        )

    def outcome_of(self, exact: str) -> str:
        return _AUDITED.get(exact, "unknown")  # the event was tampered with

    def facet_value(self, facet: str, stored: str) -> tuple[str, str]:
        grouped = facet == "kind" and stored not in CALL_STEPS
        return super().facet_value(facet, audit.group_of(stored) if grouped else stored)

    def free_text(self, user: access.User, query: Query) -> Match:
        found = query.of(FREE_TEXT)
        return Match(
            texts=[term.values[0] for term in found if not term.negated],
            without=[term.values[0] for term in found if term.negated],
        )


class Steps(Events):
    """For a query that names steps of calls: they are all that the log has of a call that retention removed. Few of the
    indexes contain them."""

    index = Q()

    def arms(self, term: Term) -> list[Arm] | None:
        return super().arms(term) if term.field in ("call", "kind") else None


def names_steps(query: Query) -> bool:
    kinds = (term for term in query.of("kind") if not term.negated)
    return any(text in CALL_STEPS for term in kinds for text in texts(term))


def _actions(term: Term) -> list[str]:
    """The actions of groups ("sign-in") and single actions ("account:session:sign_in")."""
    found: list[str] = []
    for text in texts(term):
        found += [str(action) for action in audit.actions_of(text)] if text in audit.GROUPS else [text]
    return found
