"""Connection info works for a server that sends little or nothing about itself."""

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from sessions.connections.lifecycle import connecting, initializing, ready
from tests.sessions.host.make import make_greeting, make_hold, make_session, make_worker

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("info", [{}, {"title": "Files"}, {"name": "files"}, {"version": "1"}])
def test_connection_info_of_a_server_that_names_little_of_itself(info: dict[str, str]) -> None:
    lease = make_hold(make_session("files"), make_worker())
    connecting(lease, 1, 0)
    initializing(lease)
    ready(lease, make_greeting(server_info=info))
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada"))
    response = client.get("/servers/files/info/")
    assert response.status_code == 200
    page = " ".join(response.content.decode().split())
    assert f"<dt>Name</dt> <dd> {info.get('title') or info.get('name') or 'not provided'} </dd>" in page
