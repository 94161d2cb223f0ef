"""Arguments written as JSON: what is wrong with them is said with its place."""

from collections.abc import Iterator

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit import writer as writing
from servers.definitions import versions
from servers.enums import DefinitionKind
from tests.servers.conftest import person
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db(transaction=True)
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "stops": {"type": "array", "items": {"type": "object", "properties": {"day": {"type": "integer"}}}},
    },
    "required": ["text"],
}


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


def test_each_error_names_the_argument_or_the_part_of_it(client: Client) -> None:
    server = make_session("tools").server
    tools = [{"name": "plan", "inputSchema": SCHEMA}]
    versions.store_listing(server, DefinitionKind.TOOL, tools, timezone.now())
    client.force_login(person("carla", "view_server", "call_tool"))
    fields = {"_mode": "json", "_json": '{"stops": [{"day": 1}, {"day": "two"}]}'}
    page = client.post(f"/servers/{server.slug}/call/?tool=plan", fields)
    assert page.status_code == 422
    shown = page.content.decode()
    assert "/text: Required." in shown
    assert "/stops/1/day: " in shown
