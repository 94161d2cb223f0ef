"""Rows for tests and pictures of the explorer: servers, people and calls with the events that prove them."""

#: `{calls}` calls of the last 24 hours, one in forty failed; and one call to be found: yesterday between 3 and 4 in the
#: afternoon (UTC), slow, failed, with words of its own in arguments, error, log and recorded messages.
SEED = r"""
import json, random
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from servers.audit import payloads
from servers.audit import record as recording
from servers.audit.record import Actor, Event, ServerRef, record_many
from servers.enums import ActionSource, AuditAction, AuditOutcome, PayloadKind, TransportKind
from servers.models import Identity, Payload, Server
from sessions.calls.claims import _AUDITED as AUDITED
from sessions.enums import CallState
from sessions.models import Call, LogLine, McpSession, WireMessage
from tests.sessions.explorer.rows import catch_up

chance = random.Random(14)
now = timezone.now()
people = [User.objects.get_or_create(username=name)[0] for name in ("ann", "bob", "nightly-job")]
servers = []
for slug, tools in (("orders", ("get_order", "refund_order", "query_orders")), ("github", ("create_issue", "create_pull_request", "search_code")), ("files", ("read_text_file", "search_files", "edit_file"))):
    server, _ = Server.objects.get_or_create(slug=slug, defaults=dict(name=slug.title() + " API", transport=TransportKind.STDIO, command="cat", enabled=False))
    identity, _ = Identity.objects.get_or_create(server=server, kind="shared")
    session, _ = McpSession.objects.get_or_create(server=server, identity=identity, defaults=dict(state_since=now))
    servers.append((server, identity, session, tools))
states = [CallState.SUCCEEDED] * 37 + [CallState.TOOL_ERROR, CallState.RPC_ERROR, CallState.CANCELLED]

def call(place, at, person, state, took, tool, arguments, **more):
    server, identity, session, _ = place
    text = json.dumps(arguments)
    return Call(
        server=server, server_name=server.name, identity=identity, identity_name=identity.name, session=session,
        user=person, user_name=person.username, way=chance.choice([ActionSource.PAGE, ActionSource.AGENT, ActionSource.AGENT]), target=tool,
        arguments=payloads.made(PayloadKind.ARGUMENTS, text), argument_bytes=len(text), preview=text[:200],
        total_bytes=len(text) + chance.randrange(80, 9000), state=state, created_at=at, sent_at=at,
        deadline=at + timedelta(minutes=1), finished_at=at + timedelta(milliseconds=took), duration_ms=took, **more,
    )

def record_at(*events):
    # each at its own time
    times = iter([at for at, _ in events])
    recording.timezone = SimpleNamespace(now=lambda: next(times))
    record_many([event for _, event in events])

def events_of(one):
    actor = Actor(one.user_id, one.user_name, "192.0.2.7", "request-1", one.way)
    asked = dict(arguments=one.arguments.digest)
    def event(action, outcome, **details):
        return Event(action, outcome, actor, ServerRef.of(one.server), one.identity_name, one.target, one.uid, dict(method=one.method, **details), asked)
    yield one.created_at, event(AuditAction.CALL_REQUEST, AuditOutcome.PENDING)
    yield one.created_at, event(AuditAction.CALL_SEND, AuditOutcome.PENDING, attempt=1, epoch=0)
    yield one.finished_at, event(AuditAction.CALL_FINISH, AUDITED[one.state], state=one.state.value)

chosen = []
for number in range({calls}):
    state = chance.choice(states)
    error = dict(error_code=-32602, error_message="amount is larger than what was paid") if state == CallState.RPC_ERROR else {{}}
    chosen.append((now - timedelta(seconds=86_000 * (1 - (number / {calls}) ** 1.2)), chance.choice(servers), chance.choice(people), state, int(chance.lognormvariate(4.2, 1.1)) + 1, None, dict(order_id=f"ord_{{number}}", amount=chance.randrange(1, 999)), error))
afternoon = datetime.combine((now - timedelta(days=1)).date(), datetime.min.time(), UTC) + timedelta(hours=15, minutes=23)
chosen.append((afternoon, servers[1], people[0], CallState.RPC_ERROR, 4210, "create_issue", dict(title="Acme invoice", repository="acme/shop"), dict(error_code=-32000, error_message="rate limit of acme reached", detail="sought")))
chosen.sort(key=lambda row: row[0])
for start in range(0, len(chosen), 500):
    with transaction.atomic():
        rows = [call(place, at, person, state, took, tool or chance.choice(place[3]), arguments, **more) for at, place, person, state, took, tool, arguments, more in chosen[start : start + 500]]
        Payload.objects.bulk_create([row.arguments for row in rows])
        record_at(*(event for row in Call.objects.bulk_create(rows) for event in events_of(row)))
sought = Call.objects.get(detail="sought")
LogLine.objects.create(server=sought.server, seq=1, at=sought.sent_at, source="server", level="error", text="acme refused", call_uid=sought.uid)
LogLine.objects.create(server=sought.server, seq=2, at=sought.sent_at, source="stderr", text="POST /repos/acme/shop")
for number, (direction, kind) in enumerate((("sent", "request"), ("received", "error")), 1):
    WireMessage.objects.create(server=sought.server, seq=number, position=number * 400, at=sought.sent_at, connection=1, transport="stdio", direction=direction, kind=kind, method="tools/call", target=sought.target, rpc_id="1", call_uid=sought.uid, size=90, body='{{"title": "Acme invoice"}}')
actor = Actor.of_user(people[0], "192.0.2.7", "request-1")
with transaction.atomic():
    record_at(*((now, Event(AuditAction.SERVER_CHANGE, AuditOutcome.OK, actor, ServerRef.of(place[0]), subject=place[0].name, details=dict(changes=dict(name=dict(before="x", after=place[0].name))))) for place in servers))
catch_up()
print(sought.uid)
"""
