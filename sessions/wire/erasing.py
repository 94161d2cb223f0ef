"""Empties recorded messages of calls and resources whose contents were erased. The messages themselves stay listed.

Everything here runs in the current transaction.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final
from uuid import UUID

from django.db.models import Max, Min, Q

from servers.enums import IdentityKind
from servers.sql import database
from sessions.enums import WireDirection, WireKind
from sessions.models import Question, ResourceVersion, WireMessage

_TABLE: Final = WireMessage._meta.db_table
_HTTP: Final = (WireKind.EXCHANGE, WireKind.STREAM_END)
_EMPTY: Final = {"body": "", "sealed": None, "key_id": "", "uid": None, "detail": ""}
#: messages that a server sends during a call without naming it, and our answers to them
_UNNAMED: Final = Q(
    Q(direction=WireDirection.RECEIVED, kind__in=(WireKind.NOTIFICATION, WireKind.REQUEST, WireKind.INVALID))
    | Q(direction=WireDirection.SENT, kind__in=(WireKind.RESULT, WireKind.ERROR)),
    call_uid=None,
)


def forget_contents(call_uids: Sequence[Any]) -> None:
    """Runs in the current transaction. The uids are as stored in the database."""
    if not call_uids:
        return
    marks = ", ".join(["%s"] * len(call_uids))
    with database().cursor() as cursor:
        cursor.execute(
            f"UPDATE {_TABLE} SET body = '', sealed = NULL, key_id = '', uid = NULL, detail = '' "  # noqa: S608  # names of our own model
            f"WHERE call_uid IN ({marks})",
            list(call_uids),
        )


def forget_calls(call_uids: Collection[UUID]) -> None:
    """Empty the messages of these calls, the errors of the HTTP exchanges that carried them, and messages that name no
    call between the first and the last of them."""
    of_calls = WireMessage.objects.filter(call_uid__in=call_uids).order_by()
    spans = of_calls.values("server", "identity", "connection").annotate(first=Min("seq"), last=Max("seq"))
    for span in list(spans):
        of = {name: span[name] for name in ("server", "identity", "connection")}
        of_connection = WireMessage.objects.filter(**of)
        of_connection.filter(_UNNAMED, seq__gte=span["first"], seq__lte=span["last"]).update(**_EMPTY)
        carried = set(of_calls.filter(**of).exclude(exchange=None).values_list("exchange", flat=True))
        if carried:
            of_connection.filter(exchange__in=carried, call_uid=None, kind__in=_HTTP).update(detail="")
    of_calls.update(**_EMPTY)


def forget_readings(payload_ids: Collection[int]) -> None:
    """Empty all reads of the resources that these contents come from: which read returned a version is unknown."""
    versions = ResourceVersion.objects.filter(contents__in=payload_ids).order_by()
    of = ("subscription__server", "subscription__identity", "subscription__identity__kind", "subscription__uri")
    for server, identity, kind, uri in versions.values_list(*of).distinct():
        log = {"server": server, "identity": None if kind == IdentityKind.SHARED else identity}
        WireMessage.objects.filter(**log, method="resources/read", target=uri).update(**_EMPTY)


def forget_requests(payload_ids: Collection[int]) -> None:
    """Empty the servers' requests that had these contents and belong to no call, with our answers: all of the same
    method that name no call, because it is unknown which one it was."""
    asked = Question.objects.filter(Q(question__in=payload_ids) | Q(answer__in=payload_ids), call=None)
    of = ("session__server", "session__identity", "session__identity__kind", "method")
    for server, identity, kind, method in asked.exclude(session=None).order_by().values_list(*of).distinct():
        log = {"server": server, "identity": None if kind == IdentityKind.SHARED else identity}
        WireMessage.objects.filter(**log, method=method, call_uid=None).update(**_EMPTY)
