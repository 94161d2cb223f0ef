"""Fills a database with servers, people, calls with their payloads, and audit events, as years of use leave them.

Rows are written in bulk, without indexes, which are made again at the end; the chain's hashes are not real. Everything
follows from the number of a row, so two runs make the same rows.
"""

import random
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.db.models import Model
from django.utils import timezone

from servers.definitions.versions import store_listing
from servers.enums import AuditAction, AuditOutcome, PayloadKind, TransportKind
from servers.models import AuditEvent, AuditHead, Identity, Payload, Server
from servers.models.audit import CALL_STEPS
from servers.sql import param, prepared
from sessions.enums import CallState, Desired, SessionCondition
from sessions.explorer import fulltext, indexing
from sessions.explorer.fulltext import Document
from sessions.explorer.streams import tag
from sessions.models import Call, CallRollup, IndexCursor, McpSession, RollupCursor
from sessions.models.statistics import RollupLevel
from sessions.statistics.cells import LEVELS, Cell, Tally, cells_of, read
from sessions.statistics.counting import MINUTES_KEPT

DAYS = 30
PEOPLE = 50
TOOLS = 400
MANY_TOOLS = 600
#: one in so many servers fails
FAILING = 10
#: different calls: a prime, so that their repetition falls together with no other number
KINDS = 20_011
#: in one of five calls, in one of a thousand, in three calls of all, in none
COMMON, SELDOM, RARE, MISSING = "invoice", "quarterly", "needle", "nowhere"
_STATES = (
    [CallState.SUCCEEDED] * 930
    + [CallState.TOOL_ERROR] * 30
    + [CallState.RPC_ERROR] * 10
    + [CallState.FAILED] * 10
    + [CallState.CANCELLED] * 10
    + [CallState.OUTCOME_UNKNOWN] * 5
    + [CallState.EXPIRED] * 5
)
_WAYS = ["page"] * 60 + ["agent"] * 35 + ["command"] * 4 + ["task"]
_ADMINISTRATION = [action.value for action in AuditAction if action.value not in CALL_STEPS]
_SIGN_INS = [AuditAction.SIGN_IN.value, AuditAction.SIGN_OUT.value]
_CHUNK = 50_000


class Table:
    """Writes rows of a model: those fields that differ, the rest as in `first`."""

    def __init__(self, first: Model, varying: Sequence[str]) -> None:
        self._fields = list(first._meta.concrete_fields)
        values = {
            field.attname: prepared(field, field.pre_save(first, True), connection)
            for field in self._fields
            if field.attname not in varying
        }
        names = [*varying, *values]
        self._constant = tuple(values.values())
        columns = {field.attname: field.column for field in self._fields}
        self._columns = ", ".join(f'"{columns[name]}"' for name in names)
        self._name = first._meta.db_table
        self._count = len(names)

    def write(self, rows: Iterator[tuple[Any, ...]]) -> None:
        full = (row + self._constant for row in rows)
        with connection.cursor() as cursor:
            if connection.vendor == "sqlite":
                marks = ", ".join(["?"] * self._count)
                cursor.cursor.connection.executemany(
                    f"INSERT INTO {self._name} ({self._columns}) VALUES ({marks})",  # noqa: S608  # names of our own
                    full,
                )
                return
            with cursor.copy(f"COPY {self._name} ({self._columns}) FROM STDIN") as copy:
                for row in full:
                    copy.write_row(row)


class Moments:
    """Times spread evenly over the last DAYS, in the driver's format."""

    def __init__(self, count: int) -> None:
        self._start = datetime.now(UTC).replace(microsecond=0) - timedelta(days=DAYS)
        self._step = timedelta(days=DAYS) / count

    def at(self, number: float, plus: float = 0.0) -> Any:
        moment = self._start + self._step * number + timedelta(seconds=plus)
        return moment.strftime("%Y-%m-%d %H:%M:%S.%f") if connection.vendor == "sqlite" else moment


def uid(kind: int, number: int) -> Any:
    """Spread like a random one."""
    value = UUID(int=((number * 0x9E3779B97F4A7C15 + kind) % 2**64) << 64 | kind << 60 | number)
    return value.hex if connection.vendor == "sqlite" else value


# --- few rows, by the ORM --------------------------------------------------------------------------------------------
def make_servers(count: int) -> None:
    people = [get_user_model()(username=f"person{number}") for number in range(PEOPLE)]
    get_user_model().objects.bulk_create(people)
    servers = Server.objects.bulk_create(
        [
            Server(
                slug=f"server-{number}",
                name=f"Server {number}",
                transport=TransportKind.STDIO,
                command="/usr/local/bin/npx",
                arguments=["-y", f"@example/server-of-some-team-{number}"],
                tags=["production", f"team-{number % 20}"],
            )
            for number in range(count)
        ]
    )
    identities = Identity.objects.bulk_create([Identity(server=server) for server in servers])
    now = timezone.now()
    McpSession.objects.bulk_create([McpSession(server=one.server, identity=one, state_since=now) for one in identities])
    failing = [one.pk for one in identities[::FAILING]]
    McpSession.objects.filter(identity__in=failing).update(
        desired=Desired.OPEN,
        condition=SessionCondition.FAILING,
        fault="process_exited",
        fault_detail="The process ended with exit code 1 before it answered `initialize`. Its stderr output is below.",
        fault_at=now,
    )


# --- many rows -------------------------------------------------------------------------------------------------------
def many_tools() -> tuple[str, str]:
    """Gives a server many tools, as it listed them. Returns its short name and the name of a tool."""
    server = Server.objects.get(slug="server-1")
    schema = {
        "type": "object",
        "properties": {
            f"argument_{n}": {"type": "string", "description": "What the tool needs to know. " * 3} for n in range(8)
        },
    }
    tools = [
        {"name": f"tool_{n}", "title": f"Tool number {n}", "description": "What it does. " * 20, "inputSchema": schema}
        for n in range(MANY_TOOLS)
    ]
    store_listing(server, "tool", tools, timezone.now())
    return server.slug, f"tool_{MANY_TOOLS // 2}"


class Filling:
    def __init__(self, calls: int, events: int) -> None:
        self.calls, self.events = calls, events
        self.servers = list(Server.objects.order_by("pk").values_list("pk", "name", "uid"))
        self.sessions = dict(McpSession.objects.values_list("server_id", "pk"))
        self.identities = dict(Identity.objects.values_list("server_id", "pk"))
        people = get_user_model().objects.filter(username__startswith="person").order_by("pk")
        self.people = list(people.values_list("pk", "username"))
        self.moments = Moments(calls)
        self._words = [f"word{number}" for number in range(5_000)]
        choose = random.Random(14)  # no secret
        self._kinds = [self._kind_of_call(choose) for _ in range(KINDS)]
        self._others = [
            (choose.choice(_SIGN_INS if choose.random() < 0.3 else _ADMINISTRATION), choose.random() < 0.01)
            for _ in range(KINDS)
        ]

    def _kind_of_call(self, choose: random.Random) -> dict[str, Any]:
        slow, large = choose.random() < 0.01, choose.random() < 0.002
        words = choose.choices(self._words, k=12)
        if choose.random() < 0.2:
            words[3] = COMMON
        return {
            "server": choose.choice(self.servers),
            "person": choose.choice(self.people),
            "tool": f"tool_{choose.randrange(TOOLS)}",
            "state": choose.choice(_STATES).value,
            "way": choose.choice(_WAYS),
            "duration": choose.randrange(1_000, 30_000) if slow else choose.randrange(3, 800),
            "bytes": choose.randrange(70_000, 3_000_000) if large else choose.randrange(80, 5_000),
            "words": words,
        }

    def call(self, number: int) -> dict[str, Any]:
        """What is known of a call from its number alone."""
        found = self._kinds[number % KINDS]
        words = found["words"]
        more = SELDOM if number % 1_000 == 7 else ""
        if number in (self.calls // 5, self.calls // 2, self.calls - 10):
            more = RARE
        arguments = '{"query": "' + " ".join(words[:6]) + f' {more}", "page": {number % 50}}}'
        result = '{"content": [{"type": "text", "text": "' + " ".join(words[6:]) + f' {number}"}}]}}'
        return found | {"arguments": arguments, "result": result}

    def payload_rows(self) -> Iterator[tuple[Any, ...]]:
        for number in range(1, self.calls + 1):
            call = self.call(number)
            at = self.moments.at(number)
            for half, kind in ((1, PayloadKind.ARGUMENTS), (2, PayloadKind.RESULT)):
                key = 2 * number - 2 + half
                text = call[kind.value]
                yield (key, uid(1, key), kind.value, f"{key * 0x9E3779B97F4A7C15 % 2**256:064x}", len(text), text, at)

    def call_rows(self) -> Iterator[tuple[Any, ...]]:
        for number in range(1, self.calls + 1):
            call = self.call(number)
            server, name, _ = call["server"]
            person, username = call["person"]
            at, ended = self.moments.at(number), self.moments.at(number, call["duration"] / 1_000)
            yield (
                *(
                    number,
                    uid(2, number),
                    self.sessions[server],
                    server,
                    name,
                    self.identities[server],
                    person,
                    username,
                ),
                *(call["way"], call["tool"], 2 * number - 1, 2 * number, call["arguments"][:200], call["bytes"]),
                *(call["state"], at, at, at, ended, call["duration"]),
            )

    def event_rows(self) -> Iterator[tuple[Any, ...]]:
        """Of each call three, and the others between them."""
        others = max(0, self.events - 3 * self.calls) // self.calls
        seq = 0
        for number in range(1, self.calls + 1):
            call = self.call(number)
            _, name, server_uid = call["server"]
            of_server = server_uid.hex if connection.vendor == "sqlite" else server_uid
            person, username = call["person"]
            place = (person, username, of_server, name)
            at = self.moments.at(number)
            outcome = "ok" if call["state"] == CallState.SUCCEEDED else "failed"
            steps = (
                (AuditAction.CALL_REQUEST, "pending"),
                (AuditAction.CALL_SEND, "pending"),
                (AuditAction.CALL_FINISH, outcome),
            )
            for action, end in steps:
                seq += 1
                yield self._event(seq, at, action.value, end, place, call["tool"], uid(2, number), call["way"])
            for _ in range(others):
                seq += 1
                action, denied = self._others[seq % KINDS]
                end = AuditOutcome.DENIED if denied else AuditOutcome.OK
                yield self._event(seq, at, action, end.value, place, f"subject {number % 997}", None, "page")

    def _event(
        self, seq: int, at: Any, action: str, outcome: str, place: Any, subject: str, call: Any, way: str
    ) -> tuple[Any, ...]:
        person, username, server, name = place
        body = (
            f'{{"action":"{action}","actor":{{"id":{person},"ip":"192.0.2.{seq % 250}","name":"{username}","request_id":'
            f'"{seq:032x}"}},"at":"{at}","call":null,"context":{{"duration_ms":12,"epoch":1,"way":"{way}"}},"details":'
            f'{{"method":"tools/call","state":"{outcome}"}},"digests":{{"arguments":"{seq:064x}"}},"identity":"shared",'
            f'"outcome":"{outcome}","prev":"{seq - 1:064x}","seq":{seq},"server":{{"name":"{name}"}},'
            f'"subject":"{subject}","v":2}}'
        )
        return (
            *(seq, f"{seq:064x}", body, at, action, outcome, person, username, server, name, subject, call),
            *(f"192.0.2.{seq % 250}", f"{seq:032x}", way),
        )

    # --- the index -------------------------------------------------------------------------------------------------
    def write_index(self) -> None:
        for start in range(1, self.calls + 1, _CHUNK):
            numbers = range(start, min(start + _CHUNK, self.calls + 1))
            with transaction.atomic():
                fulltext.write("calls", [self._document(number) for number in numbers])
        others = (
            AuditEvent.objects.exclude(action__in=CALL_STEPS)
            .order_by("seq")
            .values_list("seq", "subject", "actor_name")
        )
        low = 0
        while found := list(others.filter(seq__gt=low)[:_CHUNK]):
            with transaction.atomic():
                fulltext.write("events", [Document(seq, "", f"{subject}\n{actor}") for seq, subject, actor in found])
            low = found[-1][0]
        head = AuditEvent.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
        IndexCursor.objects.update_or_create(name=indexing.NAME, defaults={"seq": head})

    def _document(self, number: int) -> Document:
        call = self.call(number)
        server, name, _ = call["server"]
        person, username = call["person"]
        tags = (f"server{server}", f"user{person}", tag(call["state"]), tag(call["way"]), tag("tools/call"))
        words = fulltext.words_of(call["arguments"]) + "\n" + fulltext.words_of(call["result"])
        return Document(number, " ".join(tags), f"{call['tool']}\n{name}\n{username}\nshared", words)


# --- roll-ups, as the background job counts them ---------------------------------------------------------------------
_BUCKETS = [field.attname for field in CallRollup._meta.concrete_fields if field.attname.startswith(("within", "bey"))]
_DIMENSIONS = ("by", "server_uid", "server_name", "target", "user_name", "owner_id", "method", "way", "state")


def write_rollups() -> None:
    indexes = _drop_indexes([CallRollup._meta.db_table])
    table = Table(CallRollup(), ("id", "level", "start", "cell", *_DIMENSIONS, "calls", "bytes", *_BUCKETS))
    minutes_from = (timezone.now() - MINUTES_KEPT).timestamp()
    last = Call.objects.order_by("-pk").values_list("pk", flat=True)[0]
    sums: dict[tuple[int, int, Cell], Tally] = {}
    keys = count(1)
    with transaction.atomic():
        for low in range(0, last, _CHUNK):
            calls = read(Call.objects.filter(pk__gt=low, pk__lte=low + _CHUNK).order_by("pk"))
            for call in calls:
                for cell in cells_of(call):
                    for level in LEVELS:
                        if level != RollupLevel.MINUTE or call.at >= minutes_from:
                            sums.setdefault((int(level), call.at - call.at % level, cell), Tally()).add(call)
            over = calls[-1].at if low + _CHUNK < last else 2**62
            table.write(_rollup_row(next(keys), *one, sums.pop(one)) for one in list(sums) if one[0] + one[1] <= over)
    with connection.cursor() as cursor:
        for statement in indexes:
            cursor.execute(statement)
    now = int(timezone.now().timestamp())
    RollupCursor.objects.update_or_create(pk=1, defaults={"call_id": last, "repaired_until": now})


@cache
def _digest(cell: Cell) -> str:
    return cell.digest


def _rollup_row(key: int, level: int, start: int, cell: Cell, total: Tally) -> tuple[Any, ...]:
    dimensions = [param(CallRollup, name, getattr(cell, name)) for name in _DIMENSIONS]
    return (key, level, start, _digest(cell), *dimensions, total.calls, total.bytes, *total.latency)


def fill(servers: int, calls: int, events: int) -> dict[str, float]:
    """Returns how many seconds each part took."""
    took: dict[str, float] = {}
    _hurry()
    make_servers(servers)
    filling = Filling(calls, events)
    now = timezone.now()
    payload = Payload(salt=b"0123456789abcdef", blob=None)
    one = Call(deadline=now, created_at=now, identity_name="shared", epoch=1, argument_bytes=60, version=3)
    tables = (
        (Table(payload, ("id", "uid", "kind", "digest", "size", "text", "created_at")), filling.payload_rows),
        (
            Table(
                one,
                (
                    *("id", "uid", "session_id", "server_id", "server_name", "identity_id", "user_id", "user_name"),
                    *("way", "target", "arguments_id", "result_id", "preview", "total_bytes"),
                    *("state", "created_at", "deadline", "sent_at", "finished_at", "duration_ms"),
                ),
            ),
            filling.call_rows,
        ),
        (
            Table(
                AuditEvent(at=now, identity_name="shared"),
                (
                    *("seq", "hash", "body", "at", "action", "outcome", "actor_id", "actor_name", "server_uid"),
                    *("server_name", "subject", "call_uid", "ip", "request_id", "way"),
                ),
            ),
            filling.event_rows,
        ),
    )
    indexes = _drop_indexes([model._meta.db_table for model in (Payload, Call, AuditEvent)])
    words = [] if connection.vendor == "sqlite" else _drop_indexes(["explorer_calls", "explorer_events"])
    for table, rows in tables:
        began = time.monotonic()
        with transaction.atomic():
            table.write(rows())
        took[table._name] = time.monotonic() - began
    began = time.monotonic()
    with connection.cursor() as cursor:
        for statement in indexes:
            cursor.execute(statement)
    took["indexes"] = time.monotonic() - began
    began = time.monotonic()
    filling.write_index()
    with connection.cursor() as cursor:
        for statement in words:
            cursor.execute(statement)
    took["full text"] = time.monotonic() - began
    began = time.monotonic()
    write_rollups()
    took["roll-ups"] = time.monotonic() - began
    last = AuditEvent.objects.order_by("-seq").first()
    if last is not None:
        AuditHead.objects.update_or_create(chain=1, defaults={"seq": last.seq, "hash": last.hash})
    _settle()
    return took


def _hurry() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            for pragma in ("synchronous=OFF", "cache_size=-1000000", "temp_store=MEMORY", "foreign_keys=OFF"):
                cursor.execute(f"PRAGMA {pragma}")
        else:
            cursor.execute("SET session_replication_role = replica")
            cursor.execute("SET maintenance_work_mem = '512MB'")


def _drop_indexes(tables: list[str]) -> list[str]:
    """The statements that make them again."""
    marks = ", ".join(["%s"] * len(tables))
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                f"SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name IN ({marks})",  # noqa: S608  # marks of parameters
                tables,
            )
        else:
            cursor.execute(
                "SELECT index.indexname, index.indexdef FROM pg_indexes index WHERE index.tablename = ANY(%s)"
                " AND NOT EXISTS (SELECT 1 FROM pg_constraint one WHERE one.conname = index.indexname)",
                [tables],
            )
        found = cursor.fetchall()
        for name, _ in found:
            cursor.execute(f'DROP INDEX "{name}"')
    return [str(statement) for _, statement in found]


def _settle() -> None:
    """As an installation is that has run for long."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            cursor.execute("VACUUM ANALYZE")
            for table in (Payload, Call, AuditEvent, Server, Identity, McpSession, CallRollup):
                key = table._meta.pk.column
                if key == "id":
                    cursor.execute(
                        f"SELECT setval(pg_get_serial_sequence('{table._meta.db_table}', 'id'), COALESCE(MAX(id), 1)) FROM {table._meta.db_table}"  # noqa: S608  # names of our own models
                    )
