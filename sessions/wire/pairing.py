"""Matches recorded responses to their requests in one pass: a server that never answers, or sends unsolicited answers,
costs no more than a well-behaved one."""

from collections import defaultdict

from django.db.models import QuerySet

from sessions.enums import WireDirection, WireKind
from sessions.models import WireMessage

RESPONSES = (WireKind.RESULT, WireKind.ERROR)
_OTHER_SIDE = {
    WireDirection.SENT.value: WireDirection.RECEIVED.value,
    WireDirection.RECEIVED.value: WireDirection.SENT.value,
}


class Pairing:
    """`responses`: response numbers by request number. `outcomes`: ok, error or pending by the number of a request or
    response. Ids are tracked separately for each side and each connection; a repeated request has the response that
    followed it."""

    def __init__(self, rows: QuerySet[WireMessage]) -> None:
        self.responses: dict[int, int] = {}
        self.outcomes: dict[int, str] = {}
        waiting: dict[tuple[int, str, str], list[int]] = defaultdict(list)
        paired = rows.filter(kind__in=(WireKind.REQUEST, WireKind.INVALID, *RESPONSES)).order_by("seq")
        columns = paired.values_list("seq", "kind", "direction", "connection", "rpc_id", "fault")
        for seq, kind, direction, connection, rpc_id, fault in columns.iterator():
            if kind == WireKind.REQUEST:
                self.outcomes[seq] = "pending"
                if rpc_id:
                    waiting[connection, direction, rpc_id].append(seq)
                continue
            outcome = self.outcomes[seq] = "ok" if kind == WireKind.RESULT and not fault else "error"
            for request in waiting.pop((connection, _OTHER_SIDE[direction], rpc_id), ()):
                self.responses[request], self.outcomes[request] = seq, outcome
