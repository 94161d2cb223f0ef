"""The kinds of stored data: where their rows are, how old they are, and how much space they take."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.apps import apps
from django.db.models import BigIntegerField, BinaryField, F, Model, OuterRef, Q, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast, Coalesce, Length

from servers.enums import IdentityKind, PayloadKind
from servers.models import AuditEvent, Payload
from sessions.enums import StoredKind
from sessions.models import Call, LogLine, McpSession, ResourceVersion


@dataclass(frozen=True)
class Stored:
    """`age`: the column that says how old a row is. `overhead`: bytes of a row besides its long texts, including its
    index entries, measured on SQLite with dbstat. `trimmed_elsewhere`: rows are also removed in other ways, so they
    are counted again each time."""

    kind: StoredKind
    model: type[Model]
    age: str
    overhead: int
    only: Q = Q()
    contents: str = ""
    trimmed_elsewhere: bool = False

    def rows(self) -> QuerySet[Any]:
        return self.model._default_manager.filter(self.only).order_by("pk")

    def sized(self) -> QuerySet[Any, tuple[int, datetime, int]]:
        """Key, age and bytes of each row, by key."""
        columns = _long_columns(self.model, "")
        if self.contents:
            columns += _long_columns(Payload, f"{self.contents}__")
        size: Any = Value(self.overhead)
        for column in columns:
            size = size + Coalesce(Cast(Length(F(column)), BigIntegerField()), Value(0))
        return self.rows().annotate(taken=size).values_list("pk", self.age, "taken")


def _long_columns(model: type[Model], prefix: str) -> list[str]:
    long = (TextField, BinaryField)
    return [prefix + field.name for field in model._meta.concrete_fields if isinstance(field, long)]


def stored_kinds() -> Mapping[StoredKind, Stored]:
    """The kinds that this version has."""
    found = [
        Stored(StoredKind.CALLS, Call, "created_at", 700),
        Stored(StoredKind.PAYLOADS, Payload, "created_at", 350, ~Q(kind__in=[PayloadKind.RESOURCE, PayloadKind.SAVED])),
        Stored(StoredKind.EVENTS, AuditEvent, "at", 720),
        Stored(StoredKind.LOGS, LogLine, "at", 100, _not_newest(LogLine), trimmed_elsewhere=True),
        Stored(StoredKind.VERSIONS, ResourceVersion, "at", 500, contents="contents", trimmed_elsewhere=True),
    ]
    message = apps.all_models["mcp_sessions"].get("wiremessage")
    if message is not None:
        found.append(Stored(StoredKind.MESSAGES, message, "at", 350, _not_newest(message), trimmed_elsewhere=True))
    return {stored.kind: stored for stored in found}


def _not_newest(log: type[Model]) -> Q:
    """The newest row of each session's log stays: the next one is numbered after it, and pages continue from there."""
    rows = log._default_manager.order_by("-seq").values("pk")
    shared = _newest(rows.filter(server=OuterRef("server"), identity=None), kind=IdentityKind.SHARED)
    personal = _newest(rows.filter(identity=OuterRef("identity")), kind=IdentityKind.PERSONAL)
    return ~Q(pk__in=shared) & ~Q(pk__in=personal)


def _newest(rows: QuerySet[Any, Any], kind: IdentityKind) -> QuerySet[Any, Any]:
    sessions = McpSession.objects.filter(identity__kind=kind).order_by()
    return sessions.annotate(newest=Subquery(rows[:1])).exclude(newest=None).values("newest")
