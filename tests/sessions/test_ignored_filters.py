"""Every list says when it ignores an unknown filter value in its address."""

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from servers.enums import TransportKind
from servers.models import Server

pytestmark = pytest.mark.django_db(transaction=True)

LISTS = [
    ("/servers/", "show", "nonsense", "all"),
    ("/servers/", "environment", "nonsense", "production"),
    ("/subscriptions/", "show", "nonsense", "all"),
    ("/subscriptions/", "server", "nonsense", ""),
    ("/servers/orders/logs/", "level", "nonsense", "error"),
    ("/servers/orders/logs/", "source", "nonsense", "stderr"),
    ("/servers/orders/history/", "method", "nonsense", "tools/call"),
]


@pytest.fixture
def ada(client: Client) -> Client:
    user = get_user_model().objects.create_superuser("ada", password="x")
    Server.objects.create(name="Orders", slug="orders", transport=TransportKind.STDIO, command="npx")
    client.force_login(user)
    return client


@pytest.mark.parametrize(("path", "name", "unknown", "known"), LISTS)
def test_an_unknown_filter_value_is_said_and_a_known_one_is_not(
    ada: Client, path: str, name: str, unknown: str, known: str
) -> None:
    page = ada.get(path, {name: unknown}).content.decode()
    assert f"Unknown filter value: {name} = “{unknown}”" in page
    for given in ({name: known}, {}):
        assert "Unknown filter value" not in ada.get(path, given).content.decode()
