"""Rows of every kind beside those of the screenshots, before rows.py puts the texts in. Runs in the product's shell."""

import hashlib
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from servers.audit import payloads
from servers.audit.record import Actor, Event, ServerRef, record_many
from servers.definitions.versions import store_listing
from servers.enums import AuditAction, AuditOutcome, IdentityKind, PayloadKind
from servers.models import (
    AuditAlarm,
    BrowserReport,
    Bundle,
    OAuthClient,
    PinnedPackage,
    Server,
    ServerAuthorization,
    ServerDraft,
    Witness,
)
from sessions.connections.commands import shared_session
from sessions.enums import CallState, QuestionKind, SessionCondition, WireDirection, WireKind
from sessions.models import (
    AgentCall,
    Call,
    ConnectionEvent,
    LogLine,
    McpSession,
    Question,
    SavedCall,
    SavedView,
    ServerTask,
    Subscription,
)
from tests.e2e.hostile import corpus, scripted
from tests.servers.cast import create_draft, over_stdio
from tests.sessions.host.make import make_call
from tests.sessions.inbox.rows import a_question, answered
from tests.sessions.subscriptions.rows import add_gap, add_version, make_subscription
from tests.sessions.wire.rows import add_message

WORK = "work"
#: as the demo server offers them; the seeds of the screenshots name these tools
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": name == "forget_notes"}}
    for name in ("greet", "forget_notes", "search_notes", "add", "draw")
]


def t(name: str, row: int = 0, most: int | None = None) -> str:
    return scripted.text(name, row, most)


def base() -> None:
    """The server of the screenshot data, and one of its calls. No worker connects to it."""
    server = Server.objects.create(
        slug=WORK, name="Work", transport="stdio", command="/bin/false", enabled=False, connection_policy="on_demand"
    )
    store_listing(server, "tool", TOOLS, timezone.now())
    old = Server.objects.create(
        slug="old-sockets", name="Old", transport="websocket", url="wss://old.test/", enabled=False
    )
    old.identities.create()
    over(shared_session(server), "greet", "tools/call", scripted.result(0))


def over(
    session: McpSession, target: str, method: str, result: Any, state: str = CallState.SUCCEEDED, **fields: Any
) -> Call:
    """A call that ended, with a result as the scripted server sends it."""
    call = make_call(session, target, method=method, **{t("argument.name"): t("argument.value")})
    now = timezone.now()
    done = {
        "state": state,
        "sent_at": now,
        "finished_at": now,
        "duration_ms": 5,
        "preview": t("argument.value", most=200),
    }
    done["result"] = payloads.store(PayloadKind.RESULT, json.dumps(result))
    Call.objects.filter(pk=call.pk).update(**(done | fields))
    return Call.objects.get(pk=call.pk)


def more(rows: int) -> None:
    """`rows`: how many of each kind that a page lists."""
    server = Server.objects.get(slug=WORK)
    session, ada = shared_session(server), User.objects.get(username="ada")
    now, actor = timezone.now(), Actor.of_user(ada)
    _calls(session, rows)
    _wire(server, rows)
    _people(server, session, ada, rows)
    _packages(server)
    _subscriptions(session)
    for row in range(rows):
        LogLine.objects.create(server=server, seq=10_000 + row, at=now, source=("server", "stderr")[row % 2], text="x")
        ConnectionEvent.objects.create(
            session=session, number=1_000 * (row + 1), at=now, last_at=now, state="ready", worker="w"
        )
        BrowserReport.objects.create(
            digest=_digest("report", row), directive="x", blocked="x", page="x", browser="x", first_at=now, last_at=now
        )
        server.icons.create(digest=_digest("icon", row), problem="x", expires_at=now + timedelta(days=1))
        AuditAlarm.objects.create(kind="broken", words="x", found_at=now, acknowledged_at=now if row % 2 else None)
        Witness.objects.create(name=f"x{row}", next_attempt_at=now + timedelta(days=9), failures=3)
        server.values.create(kind=("environment", "header")[row % 2], name=f"x{row}", plain="x")
    Bundle.objects.get(slug="team-tools").names.create(
        kind="tool", exposed="x", skeleton="x", server_uid=server.uid, original="x", digest=_digest("name", 0)
    )
    draft = create_draft(actor, ada, over_stdio(command="/bin/false"))
    steps = [{"name": t("draft.step"), "state": "failed", "seconds": 1, "detail": t("draft.step", 1)}]
    report = {
        "server_info": {"name": t("draft.report"), "version": t("draft.report", 1)},
        "instructions": t("draft.report", 2),
    }
    ServerDraft.objects.filter(pk=draft.pk).update(state="failed", steps=steps, report=report)
    _events(server, ada, rows)
    McpSession.objects.filter(pk=session.pk).update(
        state="disconnected", condition=SessionCondition.PAUSED, fault="closed", fault_at=now
    )


def _digest(kind: str, row: int) -> str:
    return hashlib.sha256(f"{kind}{row}".encode()).hexdigest()


def _calls(session: McpSession, rows: int) -> None:
    states = [state for state in CallState if state not in (CallState.HELD, CallState.REQUESTED)]
    for row in range(max(rows, len(states))):
        state = states[row % len(states)]
        call = over(session, t("tool.name", row), "tools/call", scripted.result(row), state)
        if row % 3 == 0:
            times = dict.fromkeys(("begun_at", "changed_at", "seen_at"), timezone.now())
            ServerTask.objects.create(call=call, session=session, task_id="x", status="working", **times)
        if row % 3 == 1:
            AgentCall.objects.create(call=call, token_name="x", program="x", same=_digest("same", row))
        call.attempts.create(number=1, reason="x", at=timezone.now())
    over(session, t("resource.uri"), "resources/read", {"contents": scripted.contents(t("resource.uri"))})
    over(session, t("prompt.name"), "prompts/get", {"messages": scripted.messages(0)})


def _wire(server: Server, rows: int) -> None:
    kinds = list(WireKind)
    for row in range(max(rows, len(kinds))):
        kind = kinds[row % len(kinds)]
        headers = json.dumps({"sent": [[t("wire.header", row), t("wire.header", row + 1)]], "received": []})
        body = {
            "jsonrpc": "2.0",
            t("wire.key", row): t("wire.body", row),
            "params": {"x": corpus.whole(scripted.field("wire.body"))},
        }
        exchange = {"exchange": row, "headers": headers} if not kind.is_message else {}
        add_message(server, kind, body=body, direction=list(WireDirection)[row % 2], **exchange)


def _people(server: Server, session: McpSession, ada: Any, rows: int) -> None:
    worker = {
        "worker_uid": UUID(int=1),
        "epoch": 1,
        "owner_name": "x",
        "expires_at": timezone.now() + timedelta(days=1),
    }
    running = make_call(session, t("tool.name"), lapses_in=90_000)
    kinds = (
        (QuestionKind.FORM, scripted.form),
        (QuestionKind.URL, scripted.visit),
        (QuestionKind.SAMPLING, scripted.sampling),
    )
    for row in range(rows):
        for kind, asked in kinds:
            question = a_question(asked(row), kind, call=running, **worker)
            if row % 3 == 2:
                answered(question, {"x": t("question.answer", row)}, "x")
        store = payloads.store(PayloadKind.SAVED, json.dumps({t("argument.name", row): t("argument.value", row)}))
        SavedCall.objects.create(
            server=server, owner=ada, name=f"x{row}", shared=True, method="tools/call", target="greet", arguments=store
        )
        SavedView.objects.create(owner=ada, name=f"x{row}", query="x", shared=bool(row % 2))
        OAuthClient.objects.create(kind="registered", client_id=f"x{row}", name="x", redirect_uris=["https://x.test/"])
    assert Question.objects.exists()
    identity = server.identities.get(kind=IdentityKind.SHARED)
    for state in ("failed", "preparing"):
        ServerAuthorization.objects.create(
            identity=identity,
            user=ada,
            browser="x",
            state=state,
            detail="x",
            expires_at=timezone.now() + timedelta(days=1),
        )


def _packages(server: Server) -> None:
    tool = {
        "name": t("package.tool"),
        "change": "breaking",
        "reasons": [t("package.reason")],
        "before": "{}",
        "after": "{}",
    }
    names = [t("package.tool", row) for row in range(3)]
    tools = {"added": names, "removed": names, "changed": [tool], "more_changed": 0, "same": 1, "known": True}
    lock = {
        "packages": {
            "": {},
            f"node_modules/{t('package.tool', 4)}": {"version": t("package.tool", 5), "integrity": "x"},
        }
    }
    now = timezone.now()
    for state in ("pinned", "previous", "offered"):
        PinnedPackage.objects.create(
            server=server, state=state, ecosystem="npm", requested="x", name="x", version="1", integrity="x", pinned_at=now,
            lock=json.dumps(lock) if state == "pinned" else json.dumps({"packages": {"": {}}}), tools=tools, compared_at=now,
        )  # fmt: skip


def _subscriptions(session: McpSession) -> None:
    text = make_subscription(session, "x:text", title="x")
    listed = make_subscription(session, "x:json", state="refused", reason="x")
    for row in range(4):
        add_version(
            text, t("version.text", row) + "\n" + corpus.whole(scripted.field("version.text")), minutes_ago=9 - row
        )
        value = {t("version.json", row): t("version.json", row + 1), "same": [t("version.json", row + 2)]}
        add_version(listed, json.dumps(value), minutes_ago=9 - row, mime_type="application/json")
    page = f"<script>hit({corpus.number(scripted.field('version.mime'), 0)})</script>"
    add_version(
        text,
        {"uri": t("version.uri"), "mimeType": t("version.mime"), "text": t("version.text", 9)},
        {"uri": "x:page", "mimeType": "text/html", "text": page},
        {"uri": "x:blob", "mimeType": "image/svg+xml", "blob": scripted.encoded(scripted.svg("version.mime"))},
    )
    add_gap(text, began=5, ended=4)
    now = timezone.now()
    text.deliveries.create(number=1, state="given_up", attempts=7, created_at=now, last_status=503, last_detail="x")
    Subscription.objects.filter(pk=listed.pk).update(read_fault="timeout", read_detail="x")


def _events(server: Server, ada: Any, rows: int) -> None:
    """The log is sealed: its events are written with their texts."""
    actions = list(AuditAction)
    with transaction.atomic():
        record_many([
            Event(
                action, AuditOutcome.FAILED,
                Actor(ada.pk, t("audit.actor", row, 150), "192.0.2.7", t("audit.agent", row, 64)),
                ServerRef(server.uid, t("audit.actor", row + 1, 120)), t("audit.actor", row + 2, 120),
                t("audit.subject", row, 300),
                details={"detail": t("audit.detail", row), t("audit.detail", row + 1): [t("audit.detail", row + 2)]},
            )
            for row, action in enumerate(actions[: max(rows, 20)])
        ])  # fmt: skip
