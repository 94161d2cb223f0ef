"""No text of a server, a person or a receiver reaches a page of the explorer, proof, storage, privacy, exports, forwarding or
Protocol tab as markup, or with characters that hide or move text (docs/audit-proof.md, docs/explorer.md)."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.audit.record import Actor, Event, ServerRef, record_many
from servers.enums import (
    AuditAction,
    AuditOutcome,
    ExportFormat,
    ExportTarget,
    JobKind,
    JobState,
    PayloadKind,
    SinkKind,
)
from servers.models import AuditEvent, BackgroundJob, Export, ExportSchedule, RedactionRule, Sink
from sessions.enums import CallState, WireDirection, WireKind
from sessions.live import inbox_frames, sign_in_frames, subscription_frames
from sessions.models import Call, LogLine, McpSession, Question
from tests.servers.audit.proof.log import new_key
from tests.servers.conftest import admin  # noqa: F401  a fixture
from tests.sessions.explorer.rows import catch_up
from tests.sessions.host.make import make_call, make_session
from tests.sessions.subscriptions.rows import make_subscription
from tests.sessions.wire.rows import add_message

pytestmark = pytest.mark.django_db(transaction=True)
MARKUP = "<img src=x onerror=alert(1)>"
#: an escape sequence, C1, a bidirectional override, zero width, a tag character, a formula, a format string
HOSTILE = f"=Z \x1b]8;;http://e\x07 \x9b31m \u202egpj \u200b \U000e0041 {MARKUP} \"'>{{{{ 7|add:7 }}}}"
RAW = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u202e\U000e0000-\U000e007f]")


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def paths(admin: Any, settings: Any, tmp_path: Path) -> dict[str, str]:  # noqa: F811  a fixture
    """The pages, and the rows that they show, of which every text is hostile."""
    new_key(settings, tmp_path)
    session = make_session("tools")
    call = _call(session, admin)
    add_message(session.server, call_uid=call.uid, method=HOSTILE[:200], target=HOSTILE, rpc_id=HOSTILE, body=HOSTILE)
    add_message(session.server, WireKind.ERROR, fault=HOSTILE[:40], detail=HOSTILE, body={HOSTILE: HOSTILE})
    add_message(
        session.server, WireKind.EXCHANGE, method=HOSTILE[:200], target=HOSTILE, detail=HOSTILE, body="", exchange=1,
        headers='{"sent": [["x-a", "b"]], "received": []}', direction=WireDirection.SENT,
    )  # fmt: skip
    schedule, sink = _sending(admin)
    job = {"state": JobState.FAILED, "detail": HOSTILE, "finished_at": timezone.now(), "requested_name": HOSTILE}
    for kind in (JobKind.RETENTION, JobKind.RETENTION_DRY_RUN):
        BackgroundJob.objects.create(kind=kind, **job)
    rule = RedactionRule.objects.create(path=f"$['{HOSTILE}']", target=HOSTILE, note=HOSTILE, created_by_name=HOSTILE)
    seq = AuditEvent.objects.filter(call_uid=call.uid).latest("seq").seq
    server = f"/servers/{session.server.slug}"
    return {
        "explorer": f"/explorer/?cols=preview,identity&q=in:calls,events,logs,messages&sel=calls.{call.pk}",
        "explorer by text": f'/explorer/?q="{MARKUP}"',
        "an error of the query": f"/explorer/?q={HOSTILE}",
        "an event": f"/audit/{seq}/",
        "facets": "/explorer/facets/",
        "charts": "/explorer/charts/?by=tool",
        "proof": "/audit/proof/",
        "storage": "/storage/",
        "privacy": "/privacy/",
        "a rule": f"/privacy/rules/{rule.uid}/",
        "erase": f"/payloads/{call.arguments.digest}/erase/",
        "exports": "/exports/",
        "add export": f"/exports/add/?query={HOSTILE}",
        "schedule": f"/exports/schedules/{schedule.uid}/",
        "delete schedule": f"/exports/schedules/{schedule.uid}/delete/",
        "sink": f"/exports/sinks/{sink.uid}/",
        "delete sink": f"/exports/sinks/{sink.uid}/delete/",
        "protocol": f"{server}/protocol/?show=all",
        "a message": f"{server}/protocol/1/",
        "an error": f"{server}/protocol/2/",
        "an exchange": f"{server}/protocol/3/",
        "network": f"{server}/network/",
        "logs": f"{server}/logs/",
        "call": f"/calls/{call.uid}/",
    }


def _call(session: McpSession, user: Any) -> Call:
    made = make_call(session, HOSTILE, text=HOSTILE)
    now = timezone.now()
    Call.objects.filter(pk=made.pk).update(
        state=CallState.RPC_ERROR, sent_at=now, finished_at=now, duration_ms=5, user=user, error_code=-1,
        error_message=HOSTILE, error_data=f'"{MARKUP}"', detail=HOSTILE, progress_message=HOSTILE, preview=HOSTILE[:200],
        user_name=HOSTILE[:150], identity_name=HOSTILE[:120], result=payloads.store(PayloadKind.RESULT, HOSTILE),
    )  # fmt: skip
    for seq, source in enumerate(("server", "stderr"), 1):
        LogLine.objects.create(
            server=session.server, seq=seq, at=now, source=source, text=HOSTILE, logger=HOSTILE[:200], call_uid=made.uid
        )
    actor = Actor(user.pk, HOSTILE, "192.0.2.7", HOSTILE)
    call = Call.objects.get(pk=made.pk)
    with transaction.atomic():
        record_many(
            [
                Event(
                    action, AuditOutcome.RPC_ERROR, actor, ServerRef(session.server.uid, HOSTILE), HOSTILE, HOSTILE,
                    call.uid if action == AuditAction.CALL_FINISH else None, {"detail": HOSTILE, HOSTILE: MARKUP},
                    {"arguments": call.arguments.digest},
                )
                for action in (AuditAction.CALL_FINISH, AuditAction.SERVER_CHANGE)
            ]
        )  # fmt: skip
    catch_up()
    return call


def _sending(user: Any) -> tuple[ExportSchedule, Sink]:
    schedule = ExportSchedule.objects.create(
        name=HOSTILE[:80], format=ExportFormat.JSONL, interval="day", target=ExportTarget.S3, endpoint="https://s3.example.com",
        region=HOSTILE[:60], bucket=HOSTILE, prefix=HOSTILE, access_key=HOSTILE, owner=user, owner_name=HOSTILE,
        next_at=timezone.now(),
    )  # fmt: skip
    for number, of in enumerate((schedule, None)):
        Export.objects.create(
            schedule=of, owner=user, owner_name=HOSTILE, format=ExportFormat.JSONL, query=HOSTILE, failed=bool(number),
            finished_at=timezone.now(), detail=HOSTILE, place=HOSTILE, host=HOSTILE,
        )  # fmt: skip
    sink = Sink.objects.create(
        name=HOSTILE[:80], kind=SinkKind.HTTP, address="https://siem.example.com/", header="X-Key", created_name=HOSTILE,
        last_detail=HOSTILE, test_detail=HOSTILE, test_ok=False, test_requested_at=timezone.now(), failures=3,
        test_ended_at=timezone.now(), failing_since=timezone.now() - timedelta(days=1),
    )  # fmt: skip
    Sink.objects.update(created_at=timezone.now() - timedelta(days=2))
    return schedule, sink


#: fields return what was entered, unchanged
FIELDS = re.compile(r"<input[^>]*>|data-rest=\"[^\"]*\"|<textarea.*?</textarea>", re.DOTALL)


def test_no_page_shows_hostile_text_as_it_is(paths: dict[str, str], admin: Any) -> None:  # noqa: F811  a fixture
    client = Client()
    client.force_login(admin)
    wrong = {}
    for name, path in paths.items():
        response = client.get(path)
        page = response.content.decode()
        found = sorted({f"U+{ord(match[0]):04X}" for match in RAW.finditer(FIELDS.sub("", page))})
        if response.status_code not in (200, 422) or MARKUP in page or "<script>alert" in page or found:
            wrong[name] = (response.status_code, MARKUP in page, found, _around(page))
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong.items())
    for name in ("explorer", "an event", "a message", "sink", "schedule", "storage", "logs"):
        assert "U+202E" in client.get(paths[name]).content.decode(), f"{name} shows where text was hidden"


def test_no_row_that_a_script_inserts_hides_text(admin: Any) -> None:  # noqa: F811  a fixture
    session = make_session("tools")
    session.server.name = HOSTILE
    session.server.save()
    McpSession.objects.filter(pk=session.pk).update(condition="needs_auth", state_since=timezone.now())
    asked = Question(server_name=HOSTILE, expires_at=timezone.now())
    subscription = make_subscription(session, "x:text", title=HOSTILE)
    client = Client()
    client.force_login(admin)
    completions = client.get("/explorer/complete/?q=server:tool&at=11").json()["completions"]
    shown = {
        "a request": [inbox_frames.question_row(asked)["server_name"]],
        "a sign-in": [frame.text for frame in sign_in_frames.frames(None)],
        "a change": [frame.text for frame in subscription_frames.board_frames([subscription.uid])],
        "a completion": [one[name] for one in completions for name in ("shown", "label", "detail")],
    }
    for name, texts in shown.items():
        assert any("U+202E" in text for text in texts), f"{name} shows where text was hidden"
        assert not [text for text in texts if RAW.search(text) or "\\u202e" in text], name


def _around(page: str) -> str:
    match = RAW.search(FIELDS.sub("", page))
    return "" if match is None else FIELDS.sub("", page)[max(0, match.start() - 90) : match.start()]
