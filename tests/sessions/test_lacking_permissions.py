"""A person who may view but not call sees who can grant the permission in place of the button."""

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
