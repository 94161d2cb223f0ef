"""The settings of a registered server: what the page says when two people save them."""

from typing import Any

import pytest
from django.test import Client

from servers.audit.record import Actor
from servers.registration import registering
from tests.servers.cast import CANARY, header, over_http
from tests.servers.conftest import person
from tests.sessions.test_adding_pages import Fields

pytestmark = pytest.mark.django_db
ADDRESS = "/servers/orders/settings/"


@pytest.fixture
def admin() -> Any:
    return person("ada", "view_server", "add_server", "change_server")


@pytest.fixture
def client(admin: Any) -> Client:
    client = Client()
    client.force_login(admin)
    return client


@pytest.mark.parametrize("typed", [CANARY, ""])
def test_after_a_conflict_the_page_says_whether_a_new_secret_is_gone(client: Client, admin: Any, typed: str) -> None:
    server = registering.register(Actor.of_user(admin), admin, over_http(name="orders", values=[header()]))
    fields = Fields(client.get(ADDRESS).content.decode()).found
    type(server).objects.filter(pk=server.pk).update(version=server.version + 1, description="Theirs")
    answer = client.post(ADDRESS, fields | {"description": "Mine", "values-0-value": typed})
    page = answer.content.decode()
    assert answer.status_code == 409
    assert CANARY not in page
    assert Fields(page).found["description"] == "Mine"
    assert ("still in the form below, except for new secrets." in page) is bool(typed)
    assert ("Enter new secrets again." in page) is bool(typed)
