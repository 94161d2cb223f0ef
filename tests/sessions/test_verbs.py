"""Session verbs by button: they are refused with a message while the database is locked, and otherwise recorded."""

import json
import sqlite3
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone

from mcpadmin.errors import NoNullCharacters
from servers.audit import writer as writing
from servers.definitions.versions import store_listing
from servers.enums import AuditAction, DefinitionKind, IdentityKind, SignsInAs
from servers.models import AuditEvent, Identity, Server
from sessions.enums import Desired, SessionCondition, SessionState
from sessions.models import Call, McpSession
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session, make_worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.integration]
#: the wait for the writer and that of the database end after the same two seconds: either may be told
SAID = ("could not be written in time", "is not available, so nothing was changed")


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def visitor() -> Client:
    make_session("orders", desired=Desired.CLOSED)
    client = Client()
    client.force_login(person("carl", "view_server", "call_tool", "change_server"))
    return client


@pytest.fixture
def locked(visitor: Client) -> Iterator[None]:
    holder = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    yield
    holder.close()


def refused(answer: Any) -> bool:
    page = answer.content.decode()
    return any(words in page for words in SAID)


@pytest.mark.parametrize("verb", ["connect", "reconnect", "refresh", "pause"])
def test_a_verb_that_cannot_be_recorded_is_refused_in_words(verb: str, visitor: Client, locked: None) -> None:
    answer: Any = visitor.post(f"/servers/orders/{verb}/", follow=True)
    assert answer.status_code == 200
    assert refused(answer)
    assert McpSession.objects.get().desired == Desired.CLOSED


def test_the_live_page_is_told_by_status_503(visitor: Client, locked: None) -> None:
    answer = visitor.post("/servers/orders/connect/", headers={"HX-Request": "true"})
    assert (answer.status_code, refused(answer)) == (503, True)


# --- pause, resume, retry --------------------------------------------------------------------------------------------
def said(answer: Any) -> str:
    return " ".join(str(message) for message in answer.context["messages"])


def test_a_session_is_paused_and_resumed_by_the_button_and_says_who_did_it(visitor: Client) -> None:
    assert "Orders is paused" in said(visitor.post("/servers/orders/pause/", follow=True))
    page = visitor.get("/servers/orders/tools/").content.decode()
    assert 'data-phase="paused"' in page
    assert "Paused by carl" in page
    assert "is already paused" in said(visitor.post("/servers/orders/pause/", follow=True))
    assert "Orders is resumed" in said(visitor.post("/servers/orders/resume/", follow=True))
    assert "is not paused" in said(visitor.post("/servers/orders/resume/", follow=True))
    assert not McpSession.objects.get().paused


def test_a_try_is_asked_for_only_where_one_is_waited_for(visitor: Client) -> None:
    assert "is not waiting for a retry" in said(visitor.post("/servers/orders/retry/", follow=True))
    retry_at = timezone.now() + timedelta(seconds=50)
    waiting = {"desired": Desired.OPEN, "condition": SessionCondition.BACKING_OFF, "next_retry_at": retry_at}
    McpSession.objects.update(**waiting, attempts=3, fault="timeout", fault_detail="No answer.")
    page = visitor.get("/servers/orders/tools/").content.decode()
    assert 'data-phase="waiting"' in page
    assert "Attempt 4 in" in page
    assert "Retrying Orders" in said(visitor.post("/servers/orders/retry/", follow=True))
    assert McpSession.objects.get().restart_requested == 1


# --- whose session it is ----------------------------------------------------------------------------------------------
FELT_BY_ALL = ["pause", "resume", "retry", "disconnect", "reconnect", "log_level"]
PATHS = {"log_level": "logs/level"}


def order(client: Client, verb: str) -> Any:
    return client.post(f"/servers/orders/{PATHS.get(verb, verb)}/")


def signed_in(name: str, *permissions: str) -> Client:
    client = Client()
    client.force_login(person(name, "view_server", *permissions))
    return client


@pytest.mark.parametrize("permissions", [(), ("call_tool",)], ids=["view", "call"])
@pytest.mark.parametrize("verb", FELT_BY_ALL)
def test_who_may_only_call_does_not_control_a_session_that_others_use(
    verb: str, permissions: tuple[str, ...], visitor: Client
) -> None:
    before = McpSession.objects.values().get()
    answer = order(signed_in("guest", *permissions), verb)
    assert answer.status_code == 403
    assert (
        "Others use this session of Orders, so only people with permission to change servers" in answer.content.decode()
    )
    assert McpSession.objects.values().get() == before
    event = AuditEvent.objects.get(action=AuditAction.PERMISSION_DENY)
    assert (event.actor_name, json.loads(event.body)["details"]["right"]) == ("guest", "change_server")


@pytest.mark.parametrize("verb", FELT_BY_ALL)
def test_who_may_change_the_server_controls_the_session_of_all(verb: str, visitor: Client) -> None:
    assert order(signed_in("chief", "change_server"), verb).status_code == 302


@pytest.mark.parametrize("verb", FELT_BY_ALL)
def test_ones_own_session_is_ones_own_to_control_and_the_shared_one_is_not_touched(verb: str, visitor: Client) -> None:
    server = Server.objects.get()
    Server.objects.update(signs_in_as=SignsInAs.EITHER)
    guest = person("guest", "view_server", "call_tool")
    Identity.objects.create(server=server, user=guest, kind=IdentityKind.PERSONAL, name="guest")
    shared = McpSession.objects.values().get()
    client = Client()
    client.force_login(guest)
    assert order(client, verb).status_code == 302
    assert McpSession.objects.values().get(pk=shared["id"]) == shared
    assert McpSession.objects.filter(identity__user=guest).count() == 1


@pytest.mark.parametrize("verb", ["connect", "refresh"])
def test_what_each_call_may_do_who_may_call_may_order_too(verb: str, visitor: Client) -> None:
    assert order(signed_in("guest", "call_tool"), verb).status_code == 302
    assert order(signed_in("looker"), verb).status_code == 403


def test_the_page_offers_only_the_buttons_that_work(visitor: Client) -> None:
    def buttons(client: Client) -> list[str]:
        page = client.get("/servers/orders/tools/").content.decode()
        return [verb for verb in ("connect", *FELT_BY_ALL) if f'action="/servers/orders/{verb}/"' in page]

    assert buttons(visitor) == ["connect", "pause", "resume", "retry", "disconnect", "reconnect"]
    assert buttons(signed_in("guest", "call_tool")) == ["connect"]


def test_who_may_not_register_commands_is_offered_nothing_on_a_command_server_that_would_be_refused(
    visitor: Client,
) -> None:
    McpSession.objects.update(revision="2025-11-25")
    operator = signed_in("olga", "call_tool", "add_server", "change_server")
    refused = ("/servers/orders/enable/", "/servers/orders/clone/", "/servers/orders/roots/", "Save changes")

    def offered(client: Client) -> set[str]:
        pages = "".join(client.get(f"/servers/orders/{tab}/").content.decode() for tab in ("info", "settings"))
        return {words for words in refused if f'"{words}"' in pages or f">{words}<" in pages}

    assert "Only someone with permission to register commands can enable it again." in said_before(operator, "disable")
    assert order(operator, "disable").status_code == 302
    assert offered(operator) == set()
    page = operator.get("/servers/orders/tools/").content.decode()
    assert "You don&#x27;t have permission to register commands." in page
    holder = signed_in("hera", "call_tool", "add_server", "change_server", "manage_stdio")
    assert offered(holder) == set(refused)
    assert "data-permission-missing" not in holder.get("/servers/orders/info/").content.decode()
    assert order(holder, "enable").status_code == 302
    assert "You can enable it again at any time." in said_before(holder, "disable")
    Server.objects.update(transport="streamable_http", command="", url="https://orders.example/mcp", enabled=False)
    assert offered(operator) == set(refused)
    assert order(operator, "enable").status_code == 302
    assert "You can enable it again at any time." in said_before(operator, "disable")


def said_before(client: Client, verb: str) -> str:
    """What the page of a verb says before it acts."""
    return client.get(f"/servers/orders/{verb}/").content.decode()


def test_the_connection_timeline_is_on_connection_info(visitor: Client) -> None:
    visitor.post("/servers/orders/connect/")
    visitor.post("/servers/orders/pause/")
    page = visitor.get("/servers/orders/info/").content.decode()
    assert page.index("Requested by carl.") < page.rindex("Requested by carl.")
    assert page.index(">Pause<") < page.index("Connect</span>")


def test_who_reconnects_as_legacy_comes_back_to_the_tool() -> None:
    make_session("demo")
    visitor = signed_in("lea", "view_server", "change_server", "manage_stdio")
    address, tool = "/servers/demo/legacy/?tool=a%2Fb%26c", "/servers/demo/tools/?tool=a%2Fb%26c"
    assert f'href="{tool}"' in visitor.get(address).content.decode(), "Cancel"
    answer = visitor.post(address)
    assert (answer.status_code, answer.headers.get("Location")) == (302, tool), answer.content


def test_an_era_that_is_set_is_not_called_detected(visitor: Client) -> None:
    session = make_session("demo")
    found = {"era": "legacy", "revision": "2025-11-25", "decided_by": "its protocol era setting"}
    McpSession.objects.filter(pk=session.pk).update(**found, decided_at=timezone.now())
    Server.objects.filter(pk=session.server_id).update(era="legacy")
    page = visitor.get("/servers/demo/info/").content.decode()
    assert "Set under Settings. Not detected." in page
    assert "Detected by" not in page
    assert "detected again" not in page
    Server.objects.filter(pk=session.server_id).update(era="auto")
    assert "Not detected" not in visitor.get("/servers/demo/info/").content.decode()


def test_log_level_and_roots_say_when_a_change_applies(visitor: Client) -> None:
    session = make_session("demo")
    McpSession.objects.filter(pk=session.pk).update(revision="2025-11-25")
    assert "Changes apply from the next connection." in visitor.get("/servers/demo/info/").content.decode()
    McpSession.objects.filter(pk=session.pk).update(state=SessionState.READY, owner=make_worker())
    assert "Changes apply to the open session." in visitor.get("/servers/demo/info/").content.decode()


def test_a_process_that_ended_leads_to_its_logs_where_nothing_of_it_is_shown(visitor: Client) -> None:
    session = make_session("demo")
    fields = {"fault": "process_exited", "state": "disconnected", "desired": "open", "fault_detail": "exit code 1"}
    McpSession.objects.filter(pk=session.pk).update(**fields, stderr_tail="")
    page = visitor.get("/servers/demo/tools/").content.decode()
    assert "below" not in page.partition("The process ended")[2].partition("</div>")[0]
    assert '<a href="/servers/demo/logs/">See its logs</a>' in page
    McpSession.objects.filter(pk=session.pk).update(stderr_tail="no such module")
    page = visitor.get("/servers/demo/tools/").content.decode()
    assert "no such module" in page
    assert "See its logs" not in page


def test_a_server_that_was_archived_meanwhile_is_not_enabled_and_the_page_says_why(visitor: Client) -> None:
    visitor.force_login(person("ed", "view_server", "change_server", "manage_stdio"))
    Server.objects.update(enabled=False, archived_at=timezone.now())
    answer: Any = visitor.post("/servers/orders/enable/", follow=True)
    assert answer.status_code == 200
    assert "archived" in said(answer)
    assert not Server.objects.get().enabled


@pytest.mark.parametrize("path", ["tools/?tool=%00", "prompts/?prompt=a%00", "resources/?uri=%00"])
def test_an_address_with_a_null_character_is_no_failure_of_ours(path: str, visitor: Client) -> None:
    answer = visitor.get(f"/servers/orders/{path}")
    assert answer.status_code == 400
    assert "null character" in answer.content.decode()


def test_nor_is_a_raw_one() -> None:
    """No browser sends it, and clients of this test encode it."""
    request = RequestFactory().get("/servers/orders/tools/")
    request.META["QUERY_STRING"] = "tool=a\0b"
    answer = NoNullCharacters(lambda _: HttpResponse())(request)
    assert answer.status_code == 400


def test_prefilled_arguments_that_are_nested_too_deeply_are_ignored(visitor: Client) -> None:
    listing = [{"name": "echo", "inputSchema": {"type": "object"}}]
    store_listing(Server.objects.get(), DefinitionKind.TOOL, listing, timezone.now())
    for text in ("[" * 2_000, "[" * 600 + "]" * 600):
        word = urlsafe_b64encode(text.encode()).decode().rstrip("=")
        assert visitor.get(f"/servers/orders/tools/?tool=echo&args={word}&mode=json").status_code == 200


def test_roots_that_are_refused_stay_on_the_page(visitor: Client) -> None:
    visitor.force_login(person("ed", "view_server", "change_server", "manage_stdio"))
    McpSession.objects.update(revision="2025-11-25")
    version = Server.objects.get().version
    wrong: Any = visitor.post("/servers/orders/roots/", {"roots": "/srv/a\nhttp://b", "version": version})
    assert wrong.status_code == 422
    assert "/srv/a\nhttp://b</textarea>" in wrong.content.decode()
    Server.objects.update(version=version + 1, roots=[{"uri": "file:///theirs", "name": ""}])
    late: Any = visitor.post("/servers/orders/roots/", {"roots": "/srv/a", "version": version})
    page = late.content.decode()
    assert "file:///theirs" in page
    assert "/srv/a</textarea>" in page
    fresh = {"roots": "/srv/a", "version": version + 1}
    assert visitor.post("/servers/orders/roots/", fresh).status_code == 302
    assert Server.objects.get().roots == [{"uri": "file:///srv/a", "name": ""}]


@pytest.fixture
def placed(visitor: Client) -> Call:
    return make_call(McpSession.objects.get())


def test_a_cancellation_that_cannot_be_recorded_says_so_to_the_live_page(
    visitor: Client, placed: Call, locked: None
) -> None:
    answer = visitor.post(f"/calls/{placed.uid}/cancel/", headers={"HX-Request": "true"})
    assert (answer.status_code, refused(answer)) == (503, True)
