"""The recorded wire as pages and searches read it: messages for the Protocol tab, HTTP requests for the Network tab."""

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any
from uuid import UUID

from django.db.models import Count, Max, Q, QuerySet, Sum

from servers import access
from servers.crypto import open_bytes
from servers.kit.visible import visible_text
from servers.models import Server
from servers.storable import storable
from sessions.enums import SessionState, WireDirection, WireKind
from sessions.models import McpSession, WireMessage
from sessions.wire.pairing import RESPONSES, Pairing

SHOWN = 200
TEXT_CHARS = 200
#: messages of one HTTP exchange that its details name
CARRIED = 50
#: rows after a request in which its response is looked for: no index leads from one to the other
RESPONSE_WITHIN = 5_000
#: rows after the newest shown exchange that still count as carried by those shown
CARRIED_WITHIN = 20_000
#: a request is recorded just before the exchange that carries it
_BEFORE_EXCHANGE = 1_000
#: children of the calls of one page
_CHILDREN = 1_000
#: newest rows whose methods are offered as filters
COUNTED = 5_000
MESSAGES = tuple(kind for kind in WireKind if kind.is_message)
_EXCHANGES = (WireKind.EXCHANGE, WireKind.AUTHORIZATION)
_HTTP = (*_EXCHANGES, WireKind.STREAM_END)
OUTCOMES = (("error", "Errors"), ("ok", "Successful"), ("pending", "No response"))
ORDERS = (("", "Paired"), ("time", "In order"))
#: one row each in a paired list; the others stand with them
_LEADERS = (
    Q(kind=WireKind.REQUEST, direction=WireDirection.SENT)
    | Q(kind__in=(WireKind.REQUEST, WireKind.NOTIFICATION), call_uid=None)
    | Q(kind__in=(WireKind.INVALID, WireKind.DROPPED))
)
EXCHANGE_KINDS = (
    ("mcp", "MCP requests", Q(kind=WireKind.EXCHANGE)),
    ("authorization", "Sign-in requests", Q(kind=WireKind.AUTHORIZATION)),
)
EXCHANGE_OUTCOMES = (
    ("failed", "Failed", Q(status=None) | Q(status__gte=400) | ~Q(fault="")),
    ("ok", "Successful", Q(status__lt=400, fault="")),
)


def _words(text: str) -> str:
    return storable(text.strip(), TEXT_CHARS)


def _about(text: str) -> Q:
    return Q(method__icontains=text) | Q(target__icontains=text) if text else Q()


@dataclass(frozen=True)
class MessageFilter:
    """Unknown values do not filter. `order`: "" pairs responses with their requests, "time" shows each message in order."""

    order: str = ""
    direction: str = ""
    method: str = ""
    outcome: str = ""
    text: str = ""

    NAMES = ("order", "direction", "method", "outcome", "text")

    @classmethod
    def of(cls, order: str, direction: str, method: str, outcome: str, text: str) -> "MessageFilter":
        return cls(
            order if order in dict(ORDERS) else "",
            direction if direction in WireDirection.values else "",
            _words(method),
            outcome if outcome in dict(OUTCOMES) else "",
            _words(text),
        )

    def __bool__(self) -> bool:
        return bool(self.direction or self.method or self.outcome or self.text)

    @property
    def paired(self) -> bool:
        return not self.order

    def query(self) -> Q:
        """Without the outcome, which `Pairing` knows."""
        found = _LEADERS if self.paired else Q(kind__in=(*MESSAGES, WireKind.DROPPED))
        if self.direction:
            found &= Q(direction=self.direction)
        if self.method:
            found &= Q(method=self.method)
        return found & _about(self.text)


@dataclass(frozen=True)
class ExchangeFilter:
    """The filter of the Network tab. Unknown values do not filter."""

    kind: str = ""
    outcome: str = ""
    text: str = ""

    NAMES = ("kind", "outcome", "text")

    @classmethod
    def of(cls, kind: str, outcome: str, text: str) -> "ExchangeFilter":
        kinds, outcomes = ([value for value, *_ in known] for known in (EXCHANGE_KINDS, EXCHANGE_OUTCOMES))
        return cls(kind if kind in kinds else "", outcome if outcome in outcomes else "", _words(text))

    def __bool__(self) -> bool:
        return bool(self.kind or self.outcome or self.text)

    def query(self) -> Q:
        found = Q(kind__in=(*_EXCHANGES, WireKind.DROPPED)) & _about(self.text)
        for chosen, known in ((self.kind, EXCHANGE_KINDS), (self.outcome, EXCHANGE_OUTCOMES)):
            found &= next((query for value, _, query in known if value == chosen), Q())
        return found


@dataclass(frozen=True)
class WirePage:
    """`messages`: oldest first. `head`: the newest of all, from which live updates continue. `older`: cursor to go
    back. `connection`: the one that is open, 0 without one."""

    messages: list[WireMessage]
    head: int
    older: int | None
    latest: bool
    connection: int = 0
    #: by the number of the request
    responses: dict[int, WireMessage] = field(default_factory=dict)
    #: by the number of the request of their call, oldest first
    children: dict[int, list[WireMessage]] = field(default_factory=dict)


def messages(user: access.User) -> QuerySet[WireMessage]:
    """All that this user may know of, of every server; those of others' own identities only with permission to read
    payloads. What they say is for `may_read` only."""
    rows = WireMessage.objects.filter(server__in=access.visible_servers(user))
    own = Q(identity__in=access.own_identities(user))
    return rows.filter(access.seen_of_people(user, ~Q(identity=None), own))


def may_read(user: access.User, message: WireMessage) -> bool:
    """Whether the user may read bodies and errors, and not only that there was a message."""
    own = message.identity is not None and message.identity.user_id == user.pk
    return own or access.may_read_payloads(user)


def of_server(server: Server) -> QuerySet[WireMessage]:
    """The log of the session that `server` was read for."""
    return server.wire_messages.filter(identity=server.seen_as)


def request_of_call(server: Server, call_uid: UUID) -> WireMessage | None:
    """The first message that was sent for a call."""
    found = of_server(server).filter(call_uid=call_uid, kind=WireKind.REQUEST, direction=WireDirection.SENT)
    return found.only("seq").order_by("seq").first()


_OPEN = (SessionState.CONNECTING, SessionState.INITIALIZING, SessionState.READY)
_BRIEF = ("body", "sealed", "headers")


def message_page(server: Server, session: McpSession | None, chosen: MessageFilter, before: int | None) -> WirePage:
    """Only up to the head, which is read first: so live updates neither repeat nor miss a message."""
    page = _page(server, session, of_server(server).filter(chosen.query()).defer(*_BRIEF), before, chosen.outcome)
    if not chosen.paired or not page.messages:
        return page
    children = _children(server, page.messages)
    later = {child.seq for of_call in children.values() for child in of_call}
    leaders = [message for message in page.messages if message.seq not in later]
    numbers = {message.seq for message in page.messages} | later
    near = of_server(server).filter(seq__gte=min(numbers), seq__lte=max(numbers) + RESPONSE_WITHIN)
    pairs = {seq: response for seq, response in Pairing(near).responses.items() if seq in numbers}
    rows = of_server(server).filter(seq__in=set(pairs.values())).defer(*_BRIEF)
    by_number = {response.seq: response for response in rows}
    responses = {seq: by_number[response] for seq, response in pairs.items() if response in by_number}
    return WirePage(leaders, page.head, page.older, page.latest, page.connection, responses, children)


def matching(server: Server, chosen: MessageFilter, most: int) -> tuple[QuerySet[WireMessage], list[int]]:
    """The messages of a server and the numbers of the newest ones that match, the newest first. Each by itself, also of a
    paired list: there, requests by the outcome of their responses."""
    rows = of_server(server)
    each = rows.filter(replace(chosen, order="time").query(), kind__in=MESSAGES)
    return rows, _newest(server, each, chosen.outcome, most)


def _newest(server: Server, matching: QuerySet[WireMessage], outcome: str, most: int) -> list[int]:
    numbers = matching.order_by("-seq").values_list("seq", flat=True)
    if not outcome:
        return list(numbers[:most])
    outcomes = Pairing(of_server(server)).outcomes
    return list(islice((seq for seq in numbers.iterator() if outcomes.get(seq) == outcome), most))


def exchange_page(server: Server, session: McpSession | None, chosen: ExchangeFilter, before: int | None) -> WirePage:
    return _page(server, session, of_server(server).filter(chosen.query()).defer("body", "sealed"), before)


def _page(
    server: Server, session: McpSession | None, matching: QuerySet[WireMessage], before: int | None, outcome: str = ""
) -> WirePage:
    newest = of_server(server).order_by("-seq").values_list("seq", "connection")
    head = (newest.first() or (0, 0))[0]
    # a notice that messages were dropped belongs to no connection
    connection = (newest.exclude(connection=0).first() or (0, 0))[1] if session and session.state in _OPEN else 0
    end = head if before is None else min(head, before - 1)
    shown = matching.filter(seq__lte=end).order_by("-seq")
    if outcome:
        shown = shown.filter(seq__in=_newest(server, shown, outcome, SHOWN + 1))
    found = list(shown[: SHOWN + 1])
    older = found[SHOWN - 1].seq if len(found) > SHOWN else None
    return WirePage(found[:SHOWN][::-1], head, older, before is None, connection)


def _children(server: Server, leaders: list[WireMessage]) -> dict[int, list[WireMessage]]:
    """What belongs to a call beside its first request and the responses: further rounds, server requests,
    notifications. Of one call, the oldest recorded request stands for all."""
    calls = {leader.call_uid for leader in leaders if leader.call_uid is not None}
    if not calls:
        return {}
    rows = of_server(server).filter(call_uid__in=calls, kind__in=(WireKind.REQUEST, WireKind.NOTIFICATION))
    first: dict[Any, int] = {}
    found: dict[int, list[WireMessage]] = defaultdict(list)
    for row in rows.order_by("seq").defer(*_BRIEF)[:_CHILDREN]:
        if row.call_uid not in first and row.kind == WireKind.REQUEST and row.direction == WireDirection.SENT:
            first[row.call_uid] = row.seq
        elif row.call_uid in first:
            found[first[row.call_uid]].append(row)
    return dict(found)


def methods(server: Server, head: int) -> list[tuple[str, int]]:
    """The methods of the newest messages, with counts. Those with hidden characters are left out: they are found by
    text."""
    newest = of_server(server).filter(seq__gt=head - COUNTED, kind__in=(WireKind.REQUEST, WireKind.NOTIFICATION))
    counts = newest.order_by("method").values_list("method").annotate(Count("seq"))
    return [(method, count) for method, count in counts if visible_text(method) == method]


@dataclass
class ExchangeTraffic:
    """What crossed one HTTP exchange, as far as it is recorded. `attempt`: 2 for the first repetition of a request."""

    messages: int = 0
    sent: int = 0
    received: int = 0
    attempt: int = 1
    ended: bool = False
    end_fault: str = ""
    lasted_ms: float | None = None


def carried_by(server: Server, page: WirePage) -> dict[tuple[int, int | None], ExchangeTraffic]:
    """By connection and number of the exchange. Two queries."""
    shown = [message for message in page.messages if message.exchange is not None]
    if not shown:
        return {}
    rows = of_server(server).filter(
        seq__gte=shown[0].seq - _BEFORE_EXCHANGE,
        seq__lte=shown[-1].seq + CARRIED_WITHIN,
        connection__in={message.connection for message in shown},
        exchange__isnull=False,
    )
    found: dict[tuple[int, int | None], ExchangeTraffic] = defaultdict(ExchangeTraffic)
    counts = rows.exclude(kind__in=_EXCHANGES).order_by().values("connection", "exchange", "direction", "kind")
    for row in counts.annotate(n=Count("seq"), bytes=Sum("size"), fault=Max("fault"), ms=Max("duration_ms")):
        of = found[row["connection"], row["exchange"]]
        if row["kind"] == WireKind.STREAM_END:
            of.ended, of.end_fault, of.lasted_ms, of.received = True, row["fault"], row["ms"], row["bytes"]
            continue
        of.messages += row["n"]
        if row["direction"] == WireDirection.SENT:
            of.sent += row["bytes"]
    attempts: dict[tuple[int, str], int] = defaultdict(int)
    sent = rows.filter(kind=WireKind.REQUEST, direction=WireDirection.SENT).order_by("seq")
    for connection, exchange, rpc_id in sent.values_list("connection", "exchange", "rpc_id"):
        attempts[connection, rpc_id] += 1
        found[connection, exchange].attempt = max(found[connection, exchange].attempt, attempts[connection, rpc_id])
    return found


@dataclass(frozen=True)
class WireDetails:
    """A message with what belongs to it: its response or request, the HTTP exchange that carried it, and what that
    carried."""

    message: WireMessage
    pair: WireMessage | None
    exchange: WireMessage | None
    carried: list[WireMessage]
    ended: WireMessage | None = None


def details(message: WireMessage) -> WireDetails:
    of_connection = WireMessage.objects.filter(
        server=message.server_id, identity=message.identity, connection=message.connection
    )
    exchange, ended, carried = None, None, []
    if message.exchange is not None:
        in_it = of_connection.filter(exchange=message.exchange).order_by("seq")
        exchange = in_it.filter(kind__in=_EXCHANGES).first()
        if message.kind in _HTTP:
            carried = list(in_it.filter(kind__in=MESSAGES).defer("body", "sealed")[:CARRIED])
            ended = in_it.filter(kind=WireKind.STREAM_END).first()
    return WireDetails(message, _pair(message, of_connection), exchange, carried, ended)


def _pair(message: WireMessage, of_connection: QuerySet[WireMessage]) -> WireMessage | None:
    """The ids of both sides are counted apart; a message that was repeated has the response that followed the last one."""
    if not message.rpc_id:
        return None
    others = of_connection.filter(rpc_id=message.rpc_id).exclude(direction=message.direction)
    if message.kind == WireKind.REQUEST:
        return others.filter(kind__in=RESPONSES, seq__gt=message.seq).order_by("seq").first()
    if message.kind in RESPONSES:
        return others.filter(kind=WireKind.REQUEST, seq__lt=message.seq).order_by("-seq").first()
    return None


@dataclass(frozen=True)
class Headers:
    sent: list[tuple[str, str]]
    received: list[tuple[str, str]]


def headers(message: WireMessage) -> Headers | None:
    if not message.headers:
        return None
    try:
        found = json.loads(message.headers)
    except ValueError:  # longer than what is kept
        return None
    return Headers(found["sent"], found["received"])


def text(message: WireMessage) -> str:
    """The content; empty where none was kept. Raises SealError where the key ring cannot open it."""
    if message.sealed is None or message.uid is None:
        return message.body
    table = WireMessage._meta.db_table
    opened = open_bytes(message.sealed, key_id=message.key_id, table=table, uid=message.uid, field="sealed")
    return opened.decode("utf-8", "replace")


def is_stream(message: WireMessage) -> bool:
    """Whether the response goes on after its head: server-sent events, or a WebSocket connection."""
    found = headers(message)
    if message.status == 101 or found is None:
        return message.status == 101
    media = next((value for name, value in found.received if name.lower() == "content-type"), "")
    return media.lower().startswith("text/event-stream")
