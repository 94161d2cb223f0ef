"""Creates rows for tests of the host: a server with its session, a worker, a call that waits to be sent."""

import json
import re
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from servers.audit import payloads
from servers.enums import PayloadKind, TransportKind
from servers.models import Identity, Server
from sessions.connections import assignment
from sessions.connections.lifecycle import Greeting, Lease
from sessions.enums import Desired
from sessions.housekeeping import heartbeats
from sessions.housekeeping.heartbeats import Incarnation
from sessions.models import Call, McpSession, Worker

_OF_A_TEST = re.compile(rf"{re.escape(tempfile.gettempdir())}/pytest-of-[^\s'\",:;)]+")


def named_folders(texts: Iterable[str]) -> list[str]:
    """The test's own folders among what a command is started with: granted, as a person would under *Access*."""
    found = (path for text in texts for path in _OF_A_TEST.findall(text))
    return sorted({path if Path(path).is_dir() else str(Path(path).parent) for path in found})


@transaction.atomic  # a running worker never sees half of it
def make_session(
    slug: str = "files",
    *,
    desired: Desired = Desired.OPEN,
    environment: Mapping[str, str] | None = None,
    **server_fields: Any,
) -> McpSession:
    fields = {"transport": TransportKind.STDIO, "command": "cat"} | server_fields
    fields.setdefault("writable_paths", named_folders([*fields.get("arguments", []), *(environment or {}).values()]))
    server = Server.objects.create(slug=slug, name=slug.title(), **fields)
    for name, value in (environment or {}).items():
        server.values.create(kind="environment", name=name, plain=value)
    identity = Identity.objects.create(server=server)
    return McpSession.objects.create(server=server, identity=identity, desired=desired, state_since=timezone.now())


def make_me(node: str = "w1@here", pid: int = 1) -> Incarnation:
    return Incarnation(uid=uuid.uuid4(), node=node, machine="machine", pid=pid, process_started="1")


def make_worker(me: Incarnation | None = None, *, silent_for: float = 0) -> Worker:
    me = me or make_me()
    worker_id = heartbeats.heartbeat(me, draining=False, sessions=0)
    if silent_for:
        beat = timezone.now() - timedelta(seconds=silent_for)
        Worker.objects.filter(pk=worker_id).update(heartbeat_at=beat)
    return Worker.objects.get(pk=worker_id)


def make_hold(session: McpSession, worker: Worker | None = None) -> Lease:
    """Claim the session for the worker, or for a new one."""
    return assignment.claim_one(session.uid, (worker or make_worker()).pk)[0]


def make_greeting(**fields: Any) -> Greeting:
    memory = {"era": "legacy", "revision": "2025-11-25", "kind": "stdio", "url": "", "decided_at": 1_700_000_000.0}
    told = {
        "era": "legacy",
        "revision": "2025-11-25",
        "transport": "stdio",
        "url": "",
        "decided_by": "its protocol era setting",
        "decided_at": timezone.now(),
        "remembered": memory,
        "server_info": {"name": "demo"},
        "instructions": "Be kind.",
        "server_capabilities": {"tools": {}},
        "client_capabilities": {},
    }
    return Greeting(**(told | fields))


def make_call(
    session: McpSession, tool: str = "echo", *, lapses_in: float = 60, method: str = "tools/call", **arguments: Any
) -> Call:
    """A call as the web side leaves it: committed, requested, to be sent within `lapses_in` seconds."""
    return Call.objects.create(
        session=session,
        server=session.server,
        server_name=session.server.name,
        identity=session.identity,
        identity_name=session.identity.name,
        user_name="ada",
        method=method,
        target=tool,
        arguments=payloads.store(PayloadKind.ARGUMENTS, json.dumps(arguments)),
        deadline=timezone.now() + timedelta(seconds=lapses_in),
        created_at=timezone.now(),
    )
