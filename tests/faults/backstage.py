"""Database access for fault runs, behind the product's back: registers servers, writes events, reads rows.

Run as `python -m tests.faults.backstage` with the site's environment; see tests.sessions.live.backstage.
"""

import json
import sys
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.sessions.live.backstage import (  # isort: skip - sets up Django
    chain_is_whole,
    migrate,
    newest,
    record,
    sign_in,
    user,
)

from django.contrib.auth import get_user_model
from django.db.models import Count, F, Max
from django.utils import timezone

from servers.agents import tokens
from servers.audit.record import SYSTEM, Actor
from servers.bundles import changing
from servers.bundles.changing import Membership
from servers.enums import AgentScope, AuditAction, IdentityKind, TransportKind
from servers.models import AuditEvent, Definition, Identity, Server
from sessions import hints
from sessions.connections import commands
from sessions.enums import CallState, Desired, LogSource
from sessions.models import Call, LogLine, McpSession

LATE = '"late":true'


def register(name: str, **fields: Any) -> str:
    """Register an always-on server and open its session. `env`: plain environment."""
    env = fields.pop("env", {})
    made = Server.objects.create(slug=name, name=name, **_transport(fields))
    for key, value in env.items():
        made.values.create(kind="environment", name=key, plain=value)
    commands.open_session(SYSTEM, commands.shared_session(made))
    return str(made.uid)


def _transport(fields: dict[str, Any]) -> dict[str, Any]:
    """What a command writes into is granted, as a person would under *Access*."""
    if "url" in fields:
        return {"transport": TransportKind.STREAMABLE_HTTP} | fields
    written = [word for word in fields.get("arguments", []) if word.startswith("/") and not word.endswith(".py")]
    folders = sorted({word if Path(word).is_dir() else str(Path(word).parent) for word in written})
    return {"transport": TransportKind.STDIO, "writable_paths": folders} | fields


def register_many(prefix: str, count: int, **fields: Any) -> None:
    """Create the rows that `count` registrations would create, without waking a worker."""
    rows = [Server(slug=f"{prefix}-{n}", name=f"{prefix}-{n}", **_transport(fields)) for n in range(count)]
    servers = Server.objects.bulk_create(rows)
    kind = IdentityKind.SHARED
    identities = Identity.objects.bulk_create([Identity(server=server, kind=kind) for server in servers])
    now = timezone.now()
    McpSession.objects.bulk_create(
        McpSession(server=one.server, identity=one, desired=Desired.OPEN, state_since=now) for one in identities
    )


def remove_all() -> None:
    """Set the desired state of every session to closed. Hosts close them without being notified."""
    McpSession.objects.update(desired=Desired.CLOSED)


def sessions() -> list[dict[str, Any]]:
    fields = ("server__slug", "server__uid", "state", "condition", "epoch", "owner__node", "fault", "attempts")
    fields += ("connected_at",)
    rows = McpSession.objects.order_by("pk").values(*fields)
    return [{name.removeprefix("server__"): _plain(value) for name, value in row.items()} for row in rows]


def states() -> dict[str, int]:
    rows = McpSession.objects.values_list("state").annotate(n=Count("pk"))
    return {str(state): n for state, n in rows}


def has_tool(server_uid: str, tool: str) -> bool:
    return Definition.objects.filter(server__uid=server_uid, kind="tool", key=tool, removed_at=None).exists()


def unfinished() -> int:
    return Call.objects.filter(state__in=[CallState.REQUESTED, CallState.SENT]).count()


def histories() -> list[dict[str, Any]]:
    """Every call with its arguments, state, attempts and audit events."""
    events: dict[str, Counter[str]] = defaultdict(Counter)
    for call, action, body in AuditEvent.objects.exclude(call_uid=None).values_list("call_uid", "action", "body"):
        events[str(call)][action.rpartition(":")[2] + ("-late" if LATE in body else "")] += 1
    found = Call.objects.annotate(tried=Count("attempts")).select_related("arguments")
    return [_history(call, events[str(call.uid)]) for call in found.iterator(500)]


def _history(call: Call, events: Counter[str]) -> dict[str, Any]:
    arguments = json.loads(call.arguments.text or "{}")
    return {
        "uid": str(call.uid),
        "id": str(arguments.get("id", "")),
        "state": call.state,
        "final": CallState(call.state).final,
        "attempts": call.tried,
        "events": dict(events),
    }


def fences() -> list[tuple[str, bool, int]]:
    """Every session that became ready and every call that was sent, with its epoch, in the order of the audit chain."""
    sends = (AuditAction.CALL_SEND,)
    told = AuditEvent.objects.filter(action__in=[AuditAction.SESSION_READY, *sends]).order_by("seq")
    rows = told.values_list("server_uid", "action", "body")
    return [(str(uid), action in sends, json.loads(body)["details"]["epoch"]) for uid, action, body in rows]


def programs(names: list[str], each: int, bundle: str, slugs: list[str]) -> list[str]:
    """The tokens of people who each have `each`, and a bundle of these servers."""
    people = [get_user_model().objects.create_superuser(name) for name in names]
    members = [Membership(server, f"s{n}") for n, server in enumerate(Server.objects.filter(slug__in=slugs))]
    changing.create(Actor.of_user(people[0]), people[0], changing.BundleInput(bundle, members, bundle))
    scopes = [scope.value for scope in AgentScope]
    return [
        tokens.issue(Actor.of_user(person), person, tokens.NewToken(f"agent {number}", 7, scopes)).text
        for person in people
        for number in range(each)
    ]


def now() -> str:
    return timezone.now().isoformat()


def last_end_after(instant: str) -> float:
    """Seconds until the last call ended of those that were placed before."""
    since = datetime.fromisoformat(instant)
    last = Call.objects.filter(created_at__lte=since).aggregate(last=Max("finished_at"))["last"]
    return max(0.0, (last - since).total_seconds())


def slowest_call() -> float:
    """Seconds from its placing to its end."""
    took = Call.objects.annotate(took=F("finished_at") - F("created_at")).aggregate(most=Max("took"))["most"]
    return float(took.total_seconds())


def answer_of(call_uid: str) -> str:
    """The result text of a call to the test server."""
    result = Call.objects.select_related("result").get(uid=call_uid).result
    return str(json.loads(result.text or "{}")["content"][0]["text"]) if result else ""


def log_state(server_uid: str) -> dict[str, Any]:
    """The newest line number of a server's log, and the lines that mcpadmin wrote into it."""
    lines = LogLine.objects.filter(server__uid=server_uid)
    said = lines.filter(source=LogSource.HOST).order_by("seq").values_list("seq", "text")
    return {"newest": lines.aggregate(newest=Max("seq"))["newest"] or 0, "said": [[seq, text] for seq, text in said]}


def count_events(action: str) -> int:
    return AuditEvent.objects.filter(action=action).count()


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | str | None) else str(value)


VERBS = {
    verb.__name__: verb
    for verb in (
        *(chain_is_whole, migrate, newest, record, sign_in, user),
        *(register, register_many, remove_all, sessions, states, has_tool, unfinished),
        *(histories, fences, answer_of, log_state, count_events),
        *(programs, now, last_end_after, slowest_call),
    )
}


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer: dict[str, Any] = {"ok": VERBS[order["do"]](*order["args"], **order["kwargs"])}
        except Exception as problem:  # report it, so that the fault run fails with it
            answer = {"problem": f"{type(problem).__name__}: {problem}"}
        hints.flush(2)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
