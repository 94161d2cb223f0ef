"""Log lines and recorded messages of sessions."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Q, QuerySet
from django.urls import reverse

from servers import access
from sessions.enums import LogSource, WireDirection, WireKind
from sessions.explorer.language import FREE_TEXT, Term
from sessions.explorer.rows import Row
from sessions.explorer.streams.stream import NOTHING, Arm, Stream, few, names, numbers, servers, texts, uids
from sessions.models import LogLine, WireMessage
from sessions.wire import reading as wire

_LEVELS = ("debug", "info", "notice")


class OfSessions(Stream):
    """Rows of the logs of sessions. Their pages show the session that the reader's own calls use."""

    def read(self, user: access.User, keys: Sequence[int]) -> list[Any]:
        found = super().read(user, keys)
        access.seen_by_each(user, [row.server for row in found])
        return found

    @staticmethod
    def shown_at(found: LogLine | WireMessage, name: str, *more: int) -> str:
        """Empty for a row of another session."""
        return reverse(name, args=[found.server.slug, *more]) if found.server.seen_as == found.identity_id else ""


class Logs(OfSessions):
    name, label, model, at = "logs", "Logs", LogLine, "at"
    columns = ("server_id", "source", "level", "text", "logger", "call_uid", "at")

    outcome = "level"
    facets = {"outcome": "level", "server": "server__name", "kind": "source"}

    def visible(self, user: access.User) -> QuerySet[LogLine] | None:
        if not access.may(user, "view"):
            return None
        seen = access.seen_of_people(user, Q(identity__isnull=False), Q(identity__user_id=user.pk))
        return LogLine.objects.filter(seen).select_related("server", "identity")

    def condition(self, term: Term) -> Q:
        match term.field:
            case "server":
                return Q(plain_server_id__in=servers(term).values("pk"))
            case "identity":
                return names(term, "identity__name")
            case "outcome":
                wanted = set(texts(term))
                ok = Q(plain_level__in=_LEVELS)
                return (ok if "ok" in wanted else NOTHING) | (~ok if "error" in wanted else NOTHING)
            case "kind":
                return Q(plain_source__in=texts(term))
            case "call":
                return Q(plain_call_uid__in=uids(term))
            case _ if term.field == FREE_TEXT:
                return Q(plain_text__icontains=term.values[0].text) | Q(plain_logger__icontains=term.values[0].text)
        return NOTHING

    def arms(self, term: Term) -> list[Arm] | None:
        found = few(servers(term), "pk") if term.field == "server" else None
        return None if found is None else [Arm(Q(server_id=key)) for key in found]

    def row(self, user: access.User, found: LogLine) -> Row:
        source = LogSource(found.source)
        outcome = "ok" if found.level in _LEVELS else "error"
        return Row(
            stream=self.name,
            key=found.pk,
            at=found.at,
            server_uid=str(found.server.uid),
            server_name=found.server.name,
            target=found.logger,
            kind=found.source,
            label=str(source.label),
            who="",
            way="",
            identity=found.identity.name if found.identity else "",
            outcome=outcome,
            status=found.level,
            status_label=found.level.capitalize(),
            tone="" if outcome == "ok" else "warn" if found.level == "warning" else "bad",
            duration_ms=None,
            bytes=None,
            preview=found.text[:200],
            url=f"{page}?before={found.seq + 1}" if (page := self.shown_at(found, "servers:logs")) else "",
            call_uid=str(found.call_uid) if found.call_uid else "",
        )

    def outcome_of(self, exact: str) -> str:
        return "ok" if exact in _LEVELS else "error"


class Messages(OfSessions):
    """Recorded protocol messages, if the server's settings record them. They have many times more rows than the other
    streams, so a query must ask for this one."""

    name, label, model, at = "messages", "Messages", WireMessage, "at"
    columns = ("server_id", "method", "target", "kind", "call_uid", "fault", "duration_ms", "size", "at")

    outcome = "fault"
    facets = {"server": "server__name", "kind": "kind"}

    def visible(self, user: access.User) -> QuerySet[WireMessage] | None:
        if not access.may(user, "view"):
            return None
        return wire.messages(user).select_related("server", "identity").defer("body", "headers")

    def condition(self, term: Term) -> Q:
        match term.field:
            case "server":
                return Q(plain_server_id__in=servers(term).values("pk"))
            case "tool":
                return names(term, "plain_target")
            case "identity":
                return names(term, "identity__name")
            case "outcome":
                wanted, ok = set(texts(term)), Q(plain_fault="")
                return (ok if "ok" in wanted else NOTHING) | (~ok if "error" in wanted else NOTHING)
            case "status":
                return names(term, "plain_fault")
            case "kind":
                return Q(plain_kind__in=texts(term)) | names(term, "plain_method")
            case "duration":
                return numbers(term, "plain_duration_ms")
            case "size":
                return numbers(term, "plain_size")
            case "call":
                return Q(plain_call_uid__in=uids(term))
            case _ if term.field == FREE_TEXT:
                return Q(plain_method__icontains=term.values[0].text) | Q(plain_target__icontains=term.values[0].text)
        return NOTHING

    def arms(self, term: Term) -> list[Arm] | None:
        return [Arm(Q(call_uid=uid)) for uid in uids(term)] if term.field == "call" else None

    def row(self, user: access.User, found: WireMessage) -> Row:
        outcome = self.outcome_of(found.fault)
        return Row(
            stream=self.name,
            key=found.pk,
            at=found.at,
            server_uid=str(found.server.uid),
            server_name=found.server.name,
            target=found.target[:300],
            kind=found.kind,
            label=found.method or str(WireKind(found.kind).label),
            who="",
            way="",
            identity=found.identity.name if found.identity else "",
            outcome=outcome,
            status=found.fault or found.direction,
            status_label=found.fault or str(WireDirection(found.direction).label),
            tone="" if outcome == "ok" else "bad",
            duration_ms=None if found.duration_ms is None else round(found.duration_ms),
            bytes=found.size,
            preview=found.detail[:200] if wire.may_read(user, found) else "",
            url=self.shown_at(found, "servers:protocol_message", found.seq),
            call_uid=str(found.call_uid) if found.call_uid else "",
        )

    def outcome_of(self, exact: str) -> str:
        return "error" if exact else "ok"
