"""Exports and forwarding: who sees what, what a form refuses, the download, and the warning about a stalled sink."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from django.test import AsyncClient, Client
from django.utils import timezone

from servers.audit.record import SYSTEM, Actor, Event, record_many
from servers.enums import AuditAction, AuditOutcome, ExportFormat, JobKind, SinkKind
from servers.exporting import files, requesting, work
from servers.forwarding import sinks
from servers.forwarding.sinks import Secrets, SinkSettings
from servers.jobs import running
from servers.models import AuditEvent, Export, ExportSchedule, Sink
from servers.secret import Secret
from tests.servers.audit.proof.log import new_key
from tests.servers.conftest import person
from tests.servers.exporting.conftest import no_store
from tests.tools import broker

pytestmark = pytest.mark.django_db
TOKEN = "canary-token-of-a-sink"
ENCRYPTED_KEY = (
    ec.generate_private_key(ec.SECP256R1())
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase"))
    .decode()
)
HTTP = {"name": "SIEM", "address": "https://siem.example.com/in", "shape": "array", "start": "now"}


@pytest.fixture(autouse=True)
def _surroundings(settings: Any, tmp_path: Path) -> Iterator[None]:
    new_key(settings, tmp_path)
    settings.DATA_DIR = tmp_path / "data"
    before = dict(running._work)
    running.does(JobKind.EXPORT, lambda progress: work.run(no_store, progress))
    with broker.away():
        yield
    running._work.clear()
    running._work.update(before)


@pytest.fixture
def ada(client: Client, admin: Any) -> Client:
    client.force_login(admin)
    return client


def text(response: Any) -> str:
    return " ".join(str(response.content.decode()).split())


def signed_in(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


# --- exports --------------------------------------------------------------------------------------------------------------
def test_an_auditor_exports_and_sees_no_sinks(admin: Any) -> None:
    una = signed_in(person("una", "view_auditevent"))
    page = text(una.get("/exports/"))
    assert "No exports yet" in page
    assert "Add sink" not in page
    assert "Include arguments and results" not in text(una.get("/exports/add/"))
    for path in ("/exports/sinks/add/", "/exports/schedules/add/"):
        assert una.get(path).status_code == 403
    assert una.post("/exports/add/", {"format": "csv", "payloads": "on"}).status_code == 302
    assert Export.objects.get().payloads is False, "the box was not offered"
    vera = signed_in(person("vera", "view_server"))
    assert vera.get("/exports/").status_code == 403


def test_a_query_from_the_address_fills_the_field_and_chooses_the_events(ada: Client) -> None:
    page = text(ada.get("/exports/add/?query=kind:sign-in+user:ada"))
    assert 'name="query" value="kind:sign-in user:ada"' in page
    assert "outcome:error" in page, "the fields of the language are listed"
    ada.post("/exports/add/", {"format": "jsonl", "query": " kind:sign-in user:ada "})
    assert Export.objects.get().query == "kind:sign-in user:ada"
    assert "kind:sign-in user:ada" in text(ada.get("/exports/"))


def test_an_empty_query_is_the_whole_log(ada: Client) -> None:
    assert ada.post("/exports/add/", {"format": "jsonl", "query": " ", "kind": "sign-in"}).status_code == 302
    assert Export.objects.get().query == ""
    assert "Whole log" in text(ada.get("/exports/"))


def test_an_error_of_the_query_is_at_its_field_and_nothing_is_exported(ada: Client) -> None:
    refused = ada.post("/exports/add/", {"format": "csv", "query": "kind:sign-in nonsense:<x>"})
    assert refused.status_code == 422
    assert "Unknown field “nonsense”" in refused.context["form"].errors["query"][0]
    assert "Unknown field “nonsense”" in text(refused)
    assert 'value="kind:sign-in nonsense:&lt;x&gt;"' in text(refused), "it can be corrected"
    assert not Export.objects.exists()


def test_payloads_do_not_fit_into_csv(ada: Client) -> None:
    refused = ada.post("/exports/add/", {"format": "csv", "payloads": "on"})
    assert refused.status_code == 422
    assert "CSV cannot include arguments and results" in text(refused)


@pytest.mark.django_db(transaction=True)
async def test_a_file_is_downloaded_once_it_is_ready_and_recorded(async_client: AsyncClient, admin: Any) -> None:
    export = await _in_thread(_ready, admin)
    await async_client.aforce_login(admin)
    head = await async_client.head(f"/exports/{export.uid}/download/")
    assert head["Content-Length"] == str(export.size)
    assert not await AuditEvent.objects.filter(action=AuditAction.EXPORT_DOWNLOAD).aexists(), "nothing was downloaded"
    response = await async_client.get(f"/exports/{export.uid}/download/")
    body = b"".join([piece async for piece in response.streaming_content])
    assert body == files.path_of(export).read_bytes()
    assert len(body) == export.size
    assert response["Content-Disposition"].startswith('attachment; filename="mcpadmin-audit-1-')
    assert response["Cache-Control"] == "private, no-store"
    event = await AuditEvent.objects.aget(action=AuditAction.EXPORT_DOWNLOAD)
    assert export.digest in event.body


def test_a_file_of_another_length_than_was_written_is_not_sent_but_explained_and_recorded(
    ada: Client, admin: Any
) -> None:
    export = _ready(admin)
    path = files.path_of(export)
    path.write_bytes(path.read_bytes()[:-7])
    page = text(ada.get(f"/exports/{export.uid}/download/", follow=True))
    assert f"The file of this export is damaged: it has {export.size - 7:,} bytes instead of {export.size:,}." in page
    assert "Delete it and export again" in page
    event = AuditEvent.objects.get(action=AuditAction.EXPORT_DOWNLOAD)
    assert event.outcome == AuditOutcome.FAILED
    assert json.loads(event.body)["details"]["found_bytes"] == export.size - 7


async def _in_thread(work: Any, *arguments: Any) -> Any:
    return await sync_to_async(work)(*arguments)


def _ready(user: Any, kind: ExportFormat = ExportFormat.JSONL) -> Export:
    export = requesting.request(user, Actor.of_user(user), kind)
    assert export.job is not None
    running.run(str(export.job.uid))
    return Export.objects.get(pk=export.pk)


def test_no_one_else_gets_the_file_and_a_lost_one_is_explained(ada: Client, admin: Any, settings: Any) -> None:
    una = person("una", "view_auditevent")
    export = _ready(una)
    address = f"/exports/{export.uid}/download/"
    assert ada.get(address).status_code == 404
    assert ada.post(f"/exports/{export.uid}/delete/").status_code == 404
    assert Client().get(address).status_code == 302
    other = signed_in(una)
    files.path_of(export).unlink()
    Export.objects.update(host="worker-2")
    assert "A worker wrote it on worker-2." in text(other.get(address, follow=True))
    assert "The file is on the machine worker-2." in text(other.get("/exports/"))
    assert other.post(f"/exports/{export.uid}/delete/").status_code == 302
    assert not Export.objects.exists()


def test_a_running_export_shows_its_progress_and_a_failed_one_its_reason(ada: Client, admin: Any) -> None:
    export = requesting.request(admin, Actor.of_user(admin), ExportFormat.CSV)
    assert "Queued" in text(ada.get("/exports/"))
    assert f'aria-label="Cancel the export from {export.created_at:%Y-%m-%d %H:%M} UTC"' in text(ada.get("/exports/"))
    Export.objects.update(failed=True, finished_at=timezone.now(), detail="The disk of the worker is full.")
    assert "The disk of the worker is full." in text(ada.get("/exports/"))
    assert f"/exports/{export.uid}/download/" not in text(ada.get("/exports/"))
    assert "Export deleted." in text(ada.post(f"/exports/{export.uid}/delete/", follow=True))
    export = requesting.request(admin, Actor.of_user(admin), ExportFormat.CSV)
    assert "Export cancelled." in text(ada.post(f"/exports/{export.uid}/delete/", follow=True))


# --- schedules ------------------------------------------------------------------------------------------------------------
def test_a_schedule_writes_only_where_the_operator_allows(ada: Client, settings: Any, tmp_path: Path) -> None:
    assert "No directories allowed" in text(ada.get("/exports/schedules/add/?target=directory"))
    settings.EXPORT_DIRECTORIES = [str(tmp_path)]
    form = {"name": "Archive", "interval": "daily", "format": "jsonl", "directory": "/etc"}
    assert ada.post("/exports/schedules/add/?target=directory", form).status_code == 422
    assert ada.post("/exports/schedules/add/?target=directory", form | {"directory": str(tmp_path)}).status_code == 302
    schedule = ExportSchedule.objects.get()
    assert "Archive" in text(ada.get("/exports/"))
    assert "The first export starts within a minute." in text(ada.get(f"/exports/schedules/{schedule.uid}/"))
    ada.post(f"/exports/schedules/{schedule.uid}/pause/", {"pause": "1"})
    assert "Resume it, or choose Export now." in text(ada.get(f"/exports/schedules/{schedule.uid}/"))
    ada.post(f"/exports/schedules/{schedule.uid}/pause/")
    assert ada.post(f"/exports/schedules/{schedule.uid}/run/").status_code == 302
    assert "Queued" in text(ada.get(f"/exports/schedules/{schedule.uid}/"))
    ada.post(f"/exports/schedules/{schedule.uid}/pause/", {"pause": "1"})
    assert "Paused" in text(ada.get(f"/exports/schedules/{schedule.uid}/"))
    ada.post(f"/exports/schedules/{schedule.uid}/delete/")
    assert not ExportSchedule.objects.exists()


def test_the_key_of_a_store_is_sealed_and_belongs_to_its_endpoint(ada: Client) -> None:
    form = {
        "name": "Archive", "interval": "daily", "format": "jsonl", "endpoint": "https://s3.example.com", "region": "eu",
        "bucket": "audit", "prefix": "a/b", "access_key": "AKIA", "secret_key": TOKEN,
    }  # fmt: skip
    plain = form | {"endpoint": "http://s3.example.com"}
    assert "never sent over plain http" in text(ada.post("/exports/schedules/add/?target=s3", plain))
    assert ada.post("/exports/schedules/add/?target=s3", form).status_code == 302
    schedule = ExportSchedule.objects.get()
    assert schedule.sealed is not None
    assert TOKEN.encode() not in bytes(schedule.sealed)
    address = f"/exports/schedules/{schedule.uid}/"
    assert TOKEN not in text(ada.get(address))
    moved = form | {"endpoint": "https://evil.example.com", "secret_key": ""}
    refused = ada.post(address, moved)
    assert (refused.status_code, "kept only if the endpoint" in text(refused)) == (422, True)
    assert ada.post(address, form | {"secret_key": "", "prefix": "c"}).status_code == 302
    assert ExportSchedule.objects.get().prefix == "c"
    assert TOKEN not in "".join(AuditEvent.objects.values_list("body", flat=True))


# --- sinks ----------------------------------------------------------------------------------------------------------------
def test_the_signing_secret_of_a_new_sink_is_shown_once(ada: Client) -> None:
    shown = text(ada.post("/exports/sinks/add/?kind=http", HTTP | {"header": "X-Key", "value": TOKEN}))
    assert "whsec_" in shown
    sink = Sink.objects.get()
    secret = sinks.opened(sink)
    assert (secret.value.reveal(), secret.signing.reveal() in shown) == (TOKEN, True)
    page = text(ada.get(f"/exports/sinks/{sink.uid}/"))
    assert "whsec_" not in page
    assert TOKEN not in page
    assert "A new secret replaces it immediately; update the receiver as well." in page
    everything = "".join(AuditEvent.objects.values_list("body", flat=True))
    assert TOKEN not in everything
    assert "/in" not in json.loads(AuditEvent.objects.get(action=AuditAction.SINK_CREATE).body)["details"]["address"]
    renewed = text(ada.post(f"/exports/sinks/{sink.uid}/signing/"))
    assert "whsec_" in renewed
    assert secret.signing.reveal() not in renewed


@pytest.mark.parametrize(
    ("kind", "form", "words"),
    [
        ("http", {"address": "ftp://siem.example.com/"}, "Start the URL with http:// or https://."),
        (
            "http",
            {"address": "http://siem.example.com/", "header": "X-Key", "value": "v"},
            "never sent over plain http",
        ),
        ("http", {"value": "v"}, "Name the header that carries this value."),
        ("http", {"header": "X Key", "value": "v"}, "header"),
        ("http", {"header": "X-Key"}, "kept only if the address and header"),
        ("http", {"certificate": "not pem"}, "This is not a certificate in PEM."),
        ("http", {"private_key": "not pem"}, "This is not a PEM private key without a passphrase."),
        ("http", {"private_key": ENCRYPTED_KEY}, "This is not a PEM private key without a passphrase."),
        ("syslog", {"address": "logs.example.com"}, "Enter host and port"),
        ("syslog", {"address": "https://logs.example.com:1/"}, "Enter host and port"),
    ],
)
def test_a_form_says_what_is_wrong(ada: Client, kind: str, form: dict[str, str], words: str) -> None:
    refused = ada.post(f"/exports/sinks/add/?kind={kind}", HTTP | form)
    assert refused.status_code == 422
    assert words in text(refused)
    assert not Sink.objects.exists()


def test_a_name_is_taken_once(ada: Client) -> None:
    ada.post("/exports/sinks/add/?kind=http", HTTP)
    assert "This name is taken." in text(ada.post("/exports/sinks/add/?kind=http", HTTP))


def made(admin: Any, **fields: Any) -> Sink:
    given = SinkSettings("SIEM", SinkKind.HTTP, HTTP["address"], header="X-Key", secrets=Secrets(Secret(TOKEN)))
    sink = sinks.create(admin, Actor.of_user(admin), given, from_beginning=True)[0]
    Sink.objects.filter(pk=sink.pk).update(**fields)
    return Sink.objects.get(pk=sink.pk)


def test_a_stored_secret_stays_with_its_address(ada: Client, admin: Any) -> None:
    sink = made(admin)
    address = f"/exports/sinks/{sink.uid}/"
    same = HTTP | {"header": "X-Key", "value": ""}
    assert ada.post(address, same | {"name": "Renamed"}).status_code == 302
    assert sinks.opened(Sink.objects.get()).value.reveal() == TOKEN
    for other in ({"address": "https://evil.example.com/in"}, {"header": "X-Other"}):
        assert ada.post(address, same | other).status_code == 422
    assert sinks.opened(Sink.objects.get()).value.reveal() == TOKEN
    assert ada.post(address, same | {"header": ""}).status_code == 302
    assert Sink.objects.get().sealed_value is None


def test_what_is_done_with_a_sink_is_done_and_is_an_event(ada: Client, admin: Any) -> None:
    record_many([Event(AuditAction.CALL_SEND, AuditOutcome.OK, SYSTEM) for _ in range(9)])
    sink = made(admin, cursor=7)
    address = f"/exports/sinks/{sink.uid}/"
    ada.post(f"{address}pause/")
    assert "Paused" in text(ada.get(address))
    ada.post(f"{address}resume/")
    ada.post(f"{address}test/")
    assert "Waiting for a worker" in text(ada.get(address))
    fence = Sink.objects.get().fence
    ada.post(f"{address}rewind/", {"first": "3"})
    row = Sink.objects.get()
    assert (row.cursor, row.cursor_hash, row.fence > fence) == (2, AuditEvent.objects.get(seq=2).hash, True)
    assert ada.post(f"{address}rewind/", {"first": "0"}).status_code == 422
    newest = AuditEvent.objects.latest("seq").seq
    assert f"Forwarding from event {newest + 1}." in text(ada.post(f"{address}rewind/", {"first": "999"}, follow=True))
    assert Sink.objects.get().cursor == newest
    ada.post(f"{address}delete/")
    assert not Sink.objects.exists()
    done = set(AuditEvent.objects.filter(action__startswith="instance:sink:").values_list("action", flat=True))
    assert done == {
        AuditAction.SINK_CREATE, AuditAction.SINK_PAUSE, AuditAction.SINK_RESUME, AuditAction.SINK_TEST,
        AuditAction.SINK_REWIND, AuditAction.SINK_DELETE,
    }  # fmt: skip


def test_a_sink_that_is_stalled_is_on_every_page_of_administrators_only(ada: Client, admin: Any) -> None:
    record_many([Event(AuditAction.CALL_SEND, AuditOutcome.OK, SYSTEM)])
    assert "to SIEM has stalled" not in text(ada.get("/explorer/"))
    long_ago = timezone.now() - timedelta(minutes=6)
    sink = made(admin, failing_since=long_ago, created_at=long_ago, last_detail="HTTP 503")
    assert "to SIEM has stalled" not in text(ada.get("/explorer/")), "the events are new"
    later = timezone.now() + timedelta(minutes=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("servers.forwarding.board.timezone.now", lambda: later)
        page = text(ada.get("/explorer/"))
        assert "Forwarding to SIEM has stalled" in page
        assert "HTTP 503" in page
        una = signed_in(person("una", "view_auditevent"))
        assert "to SIEM has stalled" not in text(una.get("/explorer/"))
        Sink.objects.filter(pk=sink.pk).update(paused_at=timezone.now())
        assert "to SIEM has stalled" not in text(ada.get("/explorer/"))
