"""Runs everything that a live test does besides using the site, in a separate process: one JSON order per line, one
JSON answer per line.

Run as `python -m tests.sessions.live.backstage` with the site's environment.
"""

import json
import os
import sys
from datetime import timedelta
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcpadmin.settings")
django.setup()

from allauth.usersessions.models import UserSession  # noqa: E402  # after django.setup()
from django.conf import settings  # noqa: E402  # after django.setup()
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model  # noqa: E402  # after django.setup()
from django.contrib.auth.models import Group, Permission  # noqa: E402  # after django.setup()
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402  # after django.setup()
from django.core.management import call_command  # noqa: E402  # after django.setup()
from django.db import transaction  # noqa: E402  # after django.setup()
from django.db.models import F  # noqa: E402  # after django.setup()
from django.utils import timezone  # noqa: E402  # after django.setup()

from servers.accounts import people  # noqa: E402  # after django.setup()
from servers.agents.tokens import NewToken, issue  # noqa: E402  # after django.setup()
from servers.audit import payloads, verify  # noqa: E402  # after django.setup()
from servers.audit.query import head_seq  # noqa: E402  # after django.setup()
from servers.audit.record import SYSTEM, Actor, Event, record_many  # noqa: E402  # after django.setup()
from servers.enums import AuditAction, AuditOutcome, DefinitionKind, IdentityKind, JobKind, PayloadKind, TransportKind  # noqa: E402  # after django.setup()
from servers.jobs import requesting, running, work  # noqa: E402, F401 - after django.setup(); importing work registers its jobs
from servers.models import AuditEvent, Definition, Identity, Server  # noqa: E402  # after django.setup()
from sessions import hints  # noqa: E402  # after django.setup()
from sessions.connections import commands, lifecycle  # noqa: E402  # after django.setup()
from sessions.enums import CallState, Desired, LogSource, SessionCondition  # noqa: E402  # after django.setup()
from sessions.models import Call, LogLine, McpSession, Worker  # noqa: E402  # after django.setup()

User = get_user_model()
ECHO = {
    "name": "echo",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": 2000}},
        "required": ["text"],
        "additionalProperties": False,
    },
}
WIPE = {"name": "wipe", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": True}}
UNCHECKED = {**WIPE, "name": "wipe_unchecked", "inputSchema": {"$ref": "https://example.invalid/schema.json"}}


def migrate() -> None:
    call_command("migrate", verbosity=0)


def user(name: str, permissions: list[str] | None = None, superuser: bool = False) -> int:
    made = User.objects.create_user(name, password="correct horse", is_superuser=superuser)
    made.user_permissions.set(Permission.objects.filter(codename__in=permissions or []))
    return made.pk


def sign_in(name: str) -> str:
    """Create a browser session as allauth would; return its key."""
    person = User.objects.get(username=name)
    session = SessionStore()
    session[SESSION_KEY] = str(person.pk)
    session[BACKEND_SESSION_KEY] = "mcpadmin.accounts.Backend"
    session[HASH_SESSION_KEY] = person.get_session_auth_hash()
    session.create()
    return str(session.session_key)


def token(name: str) -> str:
    """Of an agent that may do what its person may."""
    person, scopes = User.objects.get(username=name), ["mcp:list", "mcp:read", "mcp:call"]
    return issue(Actor.of_user(person), person, NewToken("laptop", 7, scopes)).text


def sign_out(key: str, name: str) -> None:
    SessionStore(key).flush()
    hints.user_changed(User.objects.get(username=name).pk)


def deactivate(name: str) -> None:
    person = User.objects.get(username=name)
    person.is_active = False
    person.save()


def set_permissions(name: str, permissions: list[str]) -> None:
    User.objects.get(username=name).user_permissions.set(Permission.objects.filter(codename__in=permissions))


def join_group(name: str, group: str, permissions: list[str]) -> None:
    """The user has these permissions through a new group only."""
    made = Group.objects.create(name=group)
    made.permissions.set(Permission.objects.filter(codename__in=permissions))
    person = User.objects.get(username=name)
    person.user_permissions.clear()
    person.groups.add(made)


def change_group(group: str, permissions: list[str]) -> None:
    found = Group.objects.get(name=group)
    people.save_group(SYSTEM, None, found, name=group, given=permissions)


def delete_group(group: str) -> None:
    people.delete_group(SYSTEM, None, Group.objects.get(name=group))


def end_sign_in(name: str, key: str) -> int:
    """As the page of a user does it. The row is written at a sign-in or at the first request."""
    person = User.objects.get(username=name)
    rows = UserSession.objects.filter(user=person, session_key=key)
    return people.end_sign_ins(SYSTEM, None, person, list(rows.values_list("pk", flat=True)))


def disable(name: str) -> int:
    return people.disable(SYSTEM, None, User.objects.get(username=name))


def server(name: str, tools: list[dict[str, Any]] | None = None, policy: str = "on_demand") -> str:
    made = Server.objects.create(
        slug=name, name=name, transport=TransportKind.STDIO, command="true", connection_policy=policy
    )
    session, now = commands.shared_session(made), timezone.now()
    for position, tool in enumerate(tools or [ECHO, WIPE, UNCHECKED]):
        Definition.objects.create(
            server=made,
            identity=session.identity,
            kind="tool",
            key=tool["name"],
            body=json.dumps(tool),
            position=position,
            digest="0" * 64,
            first_seen_at=now,
            changed_at=now,
        )
    return str(made.uid)


def demo() -> str:
    """Create the demo server that ships with the product and open its session, for a real worker to connect."""
    words = settings.DEMO_COMMAND
    fields = {"transport": TransportKind.STDIO, "working_directory": str(settings.BASE_DIR)}
    made = Server.objects.create(slug="demo", name="Demo", command=words[0], arguments=words[1:], **fields)
    commands.open_session(SYSTEM, commands.shared_session(made))
    return str(made.uid)


def tools(server_uid: str) -> list[str]:
    return list(Definition.objects.filter(server__uid=server_uid, kind="tool").values_list("key", flat=True))


def worker_holds(server_uid: str) -> str:
    """Create a living worker that owns the server's session; return its uid."""
    now = timezone.now()
    worker = Worker.objects.create(
        node="fake@test", machine="m", pid=1, started_at=now, heartbeat_at=now + timedelta(minutes=5)
    )
    sessions = McpSession.objects.filter(server__uid=server_uid)
    sessions.update(owner=worker, desired=Desired.OPEN, state="ready", epoch=F("epoch") + 1, version=F("version") + 1)
    hints.session_changed(server_uid)
    return str(worker.uid)


def lists_are_read(server_uid: str) -> None:
    """So that agents are served; see `worker_holds`."""
    read = {kind: {"read_at": timezone.now().isoformat()} for kind in DefinitionKind.values}
    sessions = McpSession.objects.filter(server__uid=server_uid)
    sessions.update(revision="2025-11-25", server_capabilities={"tools": {}}, catalog_counts=read)


def falls(server_uid: str) -> None:
    """Move the session that `worker_holds` made ready to *waiting for a sign-in*, with the function that a host
    calls."""
    session = McpSession.objects.select_related("owner", "server").get(server__uid=server_uid)
    owner, server = session.owner, session.server
    lease = lifecycle.Lease(
        session.pk, session.uid, server.pk, server.uid, server.name, "shared", owner.pk, owner.uid, session.epoch
    )
    with transaction.atomic():
        assert lifecycle.waiting_for_person(
            lease, SessionCondition.NEEDS_AUTH, lifecycle.Failure("unauthorized", "It asks for a token.")
        )


def record(count: int, batch: int = 1, quiet: bool = False) -> int:
    """Append events; return the newest number. `quiet` drops the hint, as it is lost while Redis is down."""
    publish, hints.publish = hints.publish, (lambda *_: None) if quiet else hints.publish
    try:
        for start in range(0, count, batch):
            events = [
                Event(AuditAction.USER_CHANGE, AuditOutcome.OK, SYSTEM, subject=f"n{start + i}")
                for i in range(min(batch, count - start))
            ]
            with transaction.atomic():
                record_many(events)
    finally:
        hints.publish = publish
    return newest()


def newest() -> int:
    return AuditEvent.objects.order_by("-seq").values_list("seq", flat=True).first() or 0


def finish(call_uid: str, result: dict[str, Any], state: str = "succeeded") -> None:
    call = Call.objects.select_related("server").get(uid=call_uid)
    with transaction.atomic():
        payload = payloads.store(PayloadKind.RESULT, json.dumps(result))
        now = timezone.now()
        fields = {"state": state, "result": payload, "sent_at": now, "finished_at": now, "version": F("version") + 1}
        Call.objects.filter(pk=call.pk).update(**fields)
    hints.call_changed(call_uid, call.version + 1, call.server.uid)


def send(call_uid: str) -> None:
    Call.objects.filter(uid=call_uid).update(state=CallState.SENT, sent_at=timezone.now(), version=F("version") + 1)
    hints.call_changed(call_uid, 2)


def progress(call_uid: str, done: float, total: float, message: str) -> None:
    hints.call_progress(call_uid, done, total, message)


def own_identity(server_uid: str, name: str) -> str:
    """Create a personal identity with its session; return its uid."""
    owner = Server.objects.get(uid=server_uid)
    fields = {"user": User.objects.get(username=name), "kind": IdentityKind.PERSONAL, "name": name}
    identity = Identity.objects.create(server=owner, **fields)
    commands.session_of(identity, owner)
    Server.objects.filter(pk=owner.pk).update(signs_in_as="either")
    return str(identity.uid)


def own_session_is(identity_uid: str, state: str) -> None:
    rows = McpSession.objects.filter(identity__uid=identity_uid)
    rows.update(state=state, version=F("version") + 1)
    hints.session_changed(rows.get().server.uid)


def log_lines(server_uid: str, first: int, count: int, padding: int = 0, identity_uid: str = "") -> None:
    owner = Server.objects.get(uid=server_uid)
    whose = Identity.objects.filter(uid=identity_uid or None).first()
    now = timezone.now()
    LogLine.objects.bulk_create(
        LogLine(
            server=owner, identity=whose, seq=seq, at=now, source=LogSource.STDERR, text=f"line {seq} {'x' * padding}"
        )
        for seq in range(first, first + count)
    )
    hints.log_appended(server_uid, first + count - 1)


def calls() -> list[dict[str, Any]]:
    fields = ("uid", "user_name", "target", "state", "detail", "version")
    rows = Call.objects.order_by("id").values(*fields, "arguments__text", "arguments__digest", "session__desired")
    return [{name: str(value) for name, value in row.items()} for row in rows]


def events(action: str) -> list[dict[str, Any]]:
    rows = AuditEvent.objects.filter(action=action).order_by("seq")
    return [{"seq": row.seq, "actor": row.actor_name, "call": str(row.call_uid), "body": row.body} for row in rows]


def chain_is_whole() -> bool:
    """The links alone: `finish` and its like write rows of calls without their events."""
    return verify.verify(end=head_seq()).ok


def verify_log() -> None:
    job = requesting.request_scheduled(JobKind.VERIFICATION)
    assert job is not None
    running.run(str(job.uid))


def overdue(call_uid: str) -> None:
    Call.objects.filter(uid=call_uid).update(deadline=timezone.now() - timedelta(seconds=1))


def delete_server(server_uid: str) -> None:
    with transaction.atomic():
        Server.objects.filter(uid=server_uid).delete()


def slug_of(server_uid: str) -> str:
    return str(Server.objects.get(uid=server_uid).slug)


def no_workers() -> None:
    Worker.objects.all().delete()


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer: dict[str, Any] = {"ok": globals()[order["do"]](*order["args"], **order["kwargs"])}
        except Exception as problem:  # reported to the test that sent the order, which then fails with it
            answer = {"problem": f"{type(problem).__name__}: {problem}"}
        hints.flush(2)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
