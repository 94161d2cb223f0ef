"""Rows for tests and pictures of the explorer: servers, people and calls, inserted at once."""

#: `{calls}` calls of the last 24 hours, one in forty failed; and one call to be found: yesterday between 3 and 4 in the
#: afternoon (UTC), slow, failed, with words of its own in arguments and error.
SEED = r"""
import json, random
from datetime import UTC, datetime, timedelta
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from servers.audit import payloads
from servers.audit.record import Actor, Event, ServerRef, record_many
from servers.enums import AuditAction, AuditOutcome, PayloadKind, TransportKind, Way
from servers.models import Identity, Server
from sessions.enums import CallState
from sessions.models import Call, McpSession

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
        user=person, user_name=person.username, way=chance.choice([Way.PAGE, Way.AGENT, Way.AGENT]), target=tool,
        arguments=payloads.store(PayloadKind.ARGUMENTS, text), argument_bytes=len(text), preview=text[:200],
        total_bytes=len(text) + chance.randrange(80, 9000), state=state, created_at=at, sent_at=at,
        deadline=at + timedelta(minutes=1), finished_at=at + timedelta(milliseconds=took), duration_ms=took, **more,
    )

with transaction.atomic():
    rows = []
    for number in range({calls}):
        place = chance.choice(servers)
        at = now - timedelta(seconds=86_000 * (1 - (number / {calls}) ** 1.2))
        state = chance.choice(states)
        took = int(chance.lognormvariate(4.2, 1.1)) + 1
        error = dict(error_code=-32602, error_message="amount is larger than what was paid") if state == CallState.RPC_ERROR else {{}}
        rows.append(call(place, at, chance.choice(people), state, took, chance.choice(place[3]), dict(order_id=f"ord_{{number}}", amount=chance.randrange(1, 999)), **error))
    afternoon = datetime.combine((now - timedelta(days=1)).date(), datetime.min.time(), UTC) + timedelta(hours=15, minutes=23)
    rows.append(call(servers[1], afternoon, people[0], CallState.RPC_ERROR, 4210, "create_issue", dict(title="Acme invoice", repository="acme/shop"), error_code=-32000, error_message="rate limit of acme reached", detail="sought"))
    rows.sort(key=lambda row: row.created_at)
    Call.objects.bulk_create(rows, batch_size=500)
    actor = Actor.of_user(people[0], "192.0.2.7", "request-1")
    sought = Call.objects.get(detail="sought")
    steps = ((AuditAction.CALL_REQUEST, AuditOutcome.PENDING), (AuditAction.CALL_SEND, AuditOutcome.PENDING), (AuditAction.CALL_FINISH, AuditOutcome.RPC_ERROR))
    record_many([Event(action, outcome, actor, ServerRef.of(servers[1][0]), subject=sought.target, call_uid=sought.uid) for action, outcome in steps])
    record_many([Event(AuditAction.SERVER_CHANGE, AuditOutcome.OK, actor, ServerRef.of(place[0]), subject=place[0].name, details=dict(changes=dict(name=dict(before="x", after=place[0].name)))) for place in servers])
print(len(rows))
"""
