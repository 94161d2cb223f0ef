"""A person's own account: profile, how pages look, and what belongs to them; and what a deletion says of it."""

import json
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.agents import tokens
from servers.audit import writer as writing
from servers.audit.record import Actor
from servers.definitions import versions
from servers.enums import AuditAction, DefinitionKind
from servers.models import AuditEvent, Payload, Preferences, Server
from sessions.models import SavedCall
from tests.servers.conftest import admin, person  # noqa: F401  fixtures
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORD = "purple monkey dishwasher"
TOOLS = [{"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}]
ADD = "/servers/tools/saved/add/?method=tools/call&target=echo"


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def carla(db: None) -> Any:
    user = person("carla", "view_server", "call_tool", email="carla@example.org")
    user.set_password(PASSWORD)
    user.save()
    return user


@pytest.fixture
def hers(client: Client, carla: Any) -> Client:
    client.force_login(carla)
    return client


@pytest.fixture
def server() -> Server:
    made = make_session("tools")
    versions.store_listing(made.server, DefinitionKind.TOOL, TOOLS, timezone.now())
    return made.server


def save(client: Client, name: str, *, shared: bool) -> None:
    given = {"_name": name, "_filled": "1", "_mode": "json", "_json": json.dumps({"text": name})} | (
        {"_shared": "yes"} if shared else {}
    )
    assert client.post(ADD, given).status_code in (200, 303)
    assert SavedCall.objects.filter(name=name, shared=shared).exists()


def words(answer: Any, status: int = 200) -> str:
    assert answer.status_code == status
    return unescape(answer.content.decode())


# --- profile ---------------------------------------------------------------------------------------------------------
def test_a_person_changes_their_name_and_the_audit_log_has_it(hers: Client, carla: Any) -> None:
    data = {"name": "Carla Cole", "email": "carla@example.org"}
    assert "Saved." in words(hers.post("/account/profile/", data, follow=True))
    carla.refresh_from_db()
    assert carla.get_full_name() == "Carla Cole"
    event = AuditEvent.objects.filter(action=AuditAction.USER_CHANGE).latest("seq")
    assert json.loads(event.body)["details"]["changes"]["first_name"]["after"] == "Carla Cole"
    assert "Nothing changed." in words(hers.post("/account/profile/", data, follow=True))


def test_a_new_address_for_mail_needs_the_password(hers: Client, carla: Any) -> None:
    data = {"name": "", "email": "mallory@example.org"}
    for given in ("", "guessed"):
        refused = hers.post("/account/profile/", data | {"password": given})
        assert "Enter your current password" in words(refused, 422)
    carla.refresh_from_db()
    assert carla.email == "carla@example.org"
    hers.post("/account/profile/", data | {"password": PASSWORD})
    carla.refresh_from_db()
    assert carla.email == "mallory@example.org"
    assert "Enter a valid email address" in words(hers.post("/account/profile/", {"email": "no address"}), 422)


def test_the_password_of_a_stolen_session_is_not_found_out_by_trying(hers: Client, carla: Any) -> None:
    data = {"name": "", "email": "mallory@example.org"}
    for number in range(10):
        assert "Enter your current" in words(hers.post("/account/profile/", data | {"password": f"no {number}"}), 422)
    assert "Too many attempts." in words(hers.post("/account/profile/", data | {"password": PASSWORD}), 422)
    assert "Saved." in words(hers.post("/account/profile/", {"name": "C", "email": carla.email}, follow=True))
    carla.refresh_from_db()
    assert carla.email == "carla@example.org"


# --- how pages look ----------------------------------------------------------------------------------------------------
def test_zone_and_theme_are_on_every_page_and_cost_no_query(hers: Client, carla: Any) -> None:
    hers.get("/servers/")
    with CaptureQueriesContext(
        connection,
    ) as before:
        assert "data-zone=" not in words(hers.get("/servers/"))
    chosen = {"page": "account", "time_zone": "Asia/Kathmandu", "theme": "dark"}
    assert "Saved." in words(hers.post("/account/preferences/", chosen, follow=True))
    hers.get("/servers/")
    with CaptureQueriesContext(connection) as after:
        page = words(hers.get("/servers/"))
    assert 'data-zone="Asia/Kathmandu"' in page
    assert 'data-theme="dark"' in page
    assert 'data-utc="false"' in page
    assert len(after) == len(before)


def test_a_switch_of_the_shell_changes_one_preference_and_keeps_the_rest(hers: Client, carla: Any) -> None:
    hers.post("/account/preferences/", {"page": "account", "time_zone": "Asia/Kathmandu", "theme": "dark"})
    assert hers.post("/account/preferences/", {"utc": "on"}).status_code == 204
    row = Preferences.objects.get(user=carla)
    assert (row.time_zone, row.utc, row.theme) == ("Asia/Kathmandu", True, "dark")
    assert hers.post("/account/preferences/", {"utc": ""}).status_code == 204
    assert not Preferences.objects.get(user=carla).utc


def test_what_is_no_zone_and_no_theme_is_refused(hers: Client, carla: Any) -> None:
    assert hers.post("/account/preferences/", {"theme": "pink"}).status_code == 422
    refused = hers.post("/account/preferences/", {"page": "account", "time_zone": '"><script>'}, follow=True)
    assert "Choose a time zone from the list." in words(refused)
    assert not Preferences.objects.exists()


# --- what belongs to a person ------------------------------------------------------------------------------------------
def test_the_page_has_tokens_and_saved_calls_of_this_person_alone(hers: Client, carla: Any, server: Server) -> None:
    empty = words(hers.get("/account/"))
    assert "A token lets an agent use servers as you" in empty
    other = Client()
    other.force_login(person("olga", "view_server", "call_tool"))
    save(other, "Hidden from Carla", shared=True)
    save(hers, "Daily check", shared=False)
    tokens.issue(Actor.of_user(carla), carla, tokens.NewToken("laptop", 30, ["mcp:list"]))
    page = words(hers.get("/account/"))
    assert "Daily check" in page
    assert "laptop" in page
    assert "Hidden from Carla" not in page


def test_revoking_a_token_asks_first(hers: Client, carla: Any) -> None:
    token = tokens.issue(Actor.of_user(carla), carla, tokens.NewToken("laptop", 30, ["mcp:list"])).token
    address = f"/agents/tokens/{token.uid}/revoke/"
    page = words(hers.get("/account/"))
    assert f'href="{address}"' in page
    assert f'action="{address}"' not in page


# --- deletion ----------------------------------------------------------------------------------------------------------
def test_a_deletion_says_what_goes_and_shared_calls_stay(hers: Client, carla: Any, server: Server, admin: Any) -> None:  # noqa: F811  the fixture
    save(hers, "Everyone uses this", shared=True)
    save(hers, "Only mine", shared=False)
    tokens.issue(Actor.of_user(carla), carla, tokens.NewToken("laptop", 30, ["mcp:list"]))
    ada = Client()
    ada.force_login(admin)
    page = words(ada.get(f"/users/{carla.pk}/delete/"))
    assert "1 shared saved call" in page
    assert "Everyone uses this" in page
    assert "1 private saved call" in page
    assert "Only mine" not in page
    assert "1 agent token" in page
    assert words(ada.post(f"/users/{carla.pk}/delete/", follow=True))
    kept = SavedCall.objects.get()
    assert (kept.name, kept.owner) == ("Everyone uses this", None)
    assert Payload.objects.filter(pk=kept.arguments_id).exists()
    assert "Deleted user" in words(ada.get("/servers/tools/saved/"))
    ada.post(f"/saved-calls/{kept.uid}/change/", {"_name": "Ours"})
    kept.refresh_from_db()
    assert (kept.name, kept.shared) == ("Ours", False)


def test_shared_calls_are_handed_over(hers: Client, carla: Any, server: Server, admin: Any) -> None:  # noqa: F811  the fixture
    save(hers, "Everyone uses this", shared=True)
    save(hers, "Only mine", shared=False)
    ada = Client()
    ada.force_login(admin)
    ada.post(f"/users/{carla.pk}/hand-over/", {"to": admin.pk})
    assert SavedCall.objects.get(shared=True).owner == admin
    assert SavedCall.objects.get(shared=False).owner == carla
