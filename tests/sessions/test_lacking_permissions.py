"""A person who may view but not call sees who can grant the permission in place of the button."""

import re
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from servers.definitions.versions import store_listing
from servers.enums import DefinitionKind
from servers.models import Server
from tests.servers.conftest import person
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def server() -> Server:
    found = make_session("orders").server
    store_listing(found, DefinitionKind.TOOL, [{"name": "find", "inputSchema": {"type": "object"}}], timezone.now())
    store_listing(found, DefinitionKind.PROMPT, [{"name": "sum"}], timezone.now())
    return found


def page(user: Any, path: str, data: Any = None) -> str:
    client = Client()
    client.force_login(user)
    answer = client.get(path) if data is None else client.post(path, data)
    assert answer.status_code == 200
    return answer.content.decode()


PAGES = [("/servers/orders/tools/?tool=find", None), ("/servers/orders/prompts/?prompt=sum", None)]
PAGES += [("/servers/orders/tools/form/?tool=find", {"_mode": "form"})]


@pytest.mark.parametrize(("path", "data"), PAGES)
def test_who_lacks_the_permission_reads_who_can_give_it_in_place_of_the_button(
    server: Server, path: str, data: Any
) -> None:
    get_user_model().objects.create_superuser("root-ada", password="x")
    shown = page(person("vera", "view_server"), path, data)
    assert "data-run" not in shown.replace("data-run-state", "")
    assert "You don&#x27;t have permission to call tools. Ask an administrator for it: root-ada." in shown
    allowed = page(person("carl", "view_server", "call_tool"), path, data)
    assert "data-run\n" in allowed
    assert "data-permission-missing" not in allowed


@pytest.mark.parametrize("path", ["/", "/servers/", "/servers/?text=orders", "/subscriptions/"])
def test_who_may_not_see_servers_is_told_so_and_not_that_there_are_none(server: Server, path: str) -> None:
    shown = page(person("nora"), path)
    assert "You can't see servers" in shown
    assert "You don&#x27;t have permission to see servers." in shown
    for words in ("No servers yet", "No subscriptions yet", "No matching servers", "Workers alive"):
        assert words not in shown
    assert "You can't see servers" not in page(person("vera", "view_server"), path)


def test_the_side_bar_has_no_pages_that_refuse_their_reader() -> None:
    kept = ["/", "/servers/", "/inbox/", "/agents/"]
    more = ["/sessions/", "/subscriptions/", "/agents/bundles/", "/explorer/"]
    assert side_bar(person("nora")) == {*kept}
    assert side_bar(person("vera", "view_server")) == {*kept, *more}
    assert side_bar(person("andy", "view_auditevent")) == {*kept, "/explorer/", "/exports/"}
    for user in get_user_model().objects.all():
        for path in side_bar(user):
            page(user, path)


def side_bar(user: Any) -> set[str]:
    return set(re.findall(r'class="nav-i"\s+href="([^"]+)"', page(user, "/")))


def test_who_is_refused_can_sign_out_to_come_back_as_someone_else(server: Server) -> None:
    client = Client()
    client.force_login(person("nora"))
    refused = client.get("/sessions/")
    assert refused.status_code == 403
    assert 'href="/accounts/logout/"' in refused.content.decode()
    assert "Sign out?" in client.get("/accounts/logout/").content.decode()
