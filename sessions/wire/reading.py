"""The recorded wire as pages and searches read it."""

import json
from dataclasses import dataclass

from django.db.models import Max, Q, QuerySet

from servers import access
from servers.crypto import open_bytes
from servers.models import Server
from sessions.enums import WireDirection, WireKind
from sessions.models import WireMessage

SHOWN = 200
TEXT_CHARS = 200
#: messages of one HTTP exchange that its details name
CARRIED = 50
MESSAGES = tuple(kind for kind in WireKind if kind.is_message)
_ANSWERS = (WireKind.RESULT, WireKind.ERROR)
_HTTP = (WireKind.EXCHANGE, WireKind.AUTHORIZATION, WireKind.STREAM_END)
#: value of the filter: its name, and the kinds that it shows. What was not recorded is shown with each.
SHOWS = {"": ("Messages", MESSAGES), "http": ("HTTP requests", _HTTP), "all": ("Messages and HTTP", tuple(WireKind))}


@dataclass(frozen=True)
class WireFilter:
    """Unknown values do not filter."""

    show: str = ""
    direction: str = ""
    text: str = ""

    @classmethod
    def of(cls, show: str, direction: str, text: str) -> "WireFilter":
        known = direction if direction in WireDirection.values else ""
        return cls(show if show in SHOWS else "", known, text.strip()[:TEXT_CHARS].replace("\0", ""))

    def __bool__(self) -> bool:
        return bool(self.show or self.direction or self.text)

    def query(self) -> Q:
        found = Q(kind__in=(*SHOWS[self.show][1], WireKind.DROPPED))
        if self.direction:
            found &= Q(direction=self.direction)
        if self.text:
            found &= Q(method__icontains=self.text) | Q(target__icontains=self.text)
        return found


@dataclass(frozen=True)
class WirePage:
    """`messages`: oldest first. `head`: the newest of all, from which live updates continue. `older`: cursor to go
    back."""

    messages: list[WireMessage]
    head: int
    older: int | None
    latest: bool


def messages(user: access.User) -> QuerySet[WireMessage]:
    """All that this user may know of, of every server; those of others' own identities only with the right to read
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


def wire_page(server: Server, chosen: WireFilter, before: int | None) -> WirePage:
    """Only up to the head, which is read first: so live updates neither repeat nor miss a message."""
    rows = of_server(server)
    head = rows.aggregate(newest=Max("seq"))["newest"] or 0
    end = head if before is None else min(head, before - 1)
    found = list(
        rows.filter(chosen.query(), seq__lte=end).order_by("-seq").defer("body", "sealed", "headers")[: SHOWN + 1]
    )
    older = found[SHOWN - 1].seq if len(found) > SHOWN else None
    return WirePage(found[:SHOWN][::-1], head, older, before is None)


@dataclass(frozen=True)
class WireDetails:
    """A message with what belongs to it: its answer or request, the HTTP exchange that carried it, and what that
    carried."""

    message: WireMessage
    pair: WireMessage | None
    exchange: WireMessage | None
    carried: list[WireMessage]


def details(message: WireMessage) -> WireDetails:
    of_connection = WireMessage.objects.filter(
        server=message.server_id, identity=message.identity, connection=message.connection
    )
    exchange, carried = None, []
    if message.exchange is not None:
        in_it = of_connection.filter(exchange=message.exchange).order_by("seq")
        exchange = in_it.filter(kind__in=_HTTP[:2]).first()
        if message.kind in _HTTP:
            carried = list(in_it.filter(kind__in=MESSAGES).defer("body", "sealed")[:CARRIED])
    return WireDetails(message, _pair(message, of_connection), exchange, carried)


def _pair(message: WireMessage, of_connection: QuerySet[WireMessage]) -> WireMessage | None:
    """The ids of both sides are counted apart; a message that was repeated has the answer that followed the last one."""
    if not message.rpc_id:
        return None
    others = of_connection.filter(rpc_id=message.rpc_id).exclude(direction=message.direction)
    if message.kind == WireKind.REQUEST:
        return others.filter(kind__in=_ANSWERS, seq__gt=message.seq).order_by("seq").first()
    if message.kind in _ANSWERS:
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
