"""What pages show of a stdio server while it starts: progress, command and inherited environment."""

import re
import shlex
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from servers.audit.record import Actor
from servers.configuration import Registration
from servers.enums import DraftState, TransportKind
from servers.models import ServerDraft
from sessions.connections.starting import UNCONFIRMED, held_up
from sessions.enums import SessionState
from sessions.models import McpSession
from tests.servers.cast import create_draft
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    made = Client()
    made.force_login(get_user_model().objects.create_superuser("ada"))
    return made


def starting(seconds: float, **server: Any) -> McpSession:
    session = make_session(**server)
    since = timezone.now() - timedelta(seconds=seconds)
    fields = {"state": SessionState.CONNECTING, "state_since": since, "attempts": 2}
    McpSession.objects.filter(pk=session.pk).update(**fields, stderr_tail="fetching <one>")
    return session


def page(client: Client, session: McpSession, tab: str = "tools") -> str:
    return client.get(f"/servers/{session.server.slug}/{tab}/", secure=True).content.decode()


def test_a_start_that_lasts_shows_its_seconds_attempt_and_stderr(client: Client) -> None:
    html = page(client, starting(23, command="python", arguments=["x.py"]))
    assert "Starting for" in html
    assert re.search(r">2\d s</time> \(attempt 2\)", html)
    assert "fetching &lt;one&gt;" in html
    assert "MCPADMIN_INHERITED_VARIABLES" not in html


def test_a_start_that_just_began_and_one_over_http_show_none(client: Client) -> None:
    assert "Starting for" not in page(client, starting(0))
    assert "Starting for" not in page(client, starting(23, slug="web", transport="auto_http", url="https://x.example"))


@pytest.mark.parametrize(
    ("command", "package", "asks"), [("npx", "github:acme/acme", True), ("npx", "acme", False), ("uvx", "acme", False)]
)
def test_a_launcher_that_is_held_up_says_what_the_machine_may_need(
    client: Client, command: str, package: str, asks: bool
) -> None:
    html = page(client, starting(25, command=command, arguments=[package]))
    assert f"{command} may still be installing the server" in html
    assert "HTTPS_PROXY" in html
    assert ("npx without -y" in html) is asks
    assert "may still be installing" not in page(client, starting(5, slug="new", command=command, arguments=["acme"]))


def test_the_form_notices_npx_without_its_yes_and_names_what_is_inherited(
    client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.INHERITED_VARIABLES = ["HTTPS_PROXY"]
    monkeypatch.setenv("HTTPS_PROXY", "http://canary-proxy:3128")
    html = page(client, make_session(command="npx", arguments=["github:acme/acme"]), "settings")
    assert "npx without -y may wait" in html
    assert "MCPADMIN_INHERITED_VARIABLES adds HTTPS_PROXY" in html
    assert "canary-proxy" not in html
    assert "npx without -y" not in page(client, make_session("y", command="npx", arguments=["acme"]), "settings")


def test_without_a_list_the_form_says_which_setting_makes_one(client: Client, settings: Any) -> None:
    settings.INHERITED_VARIABLES = []
    html = page(client, make_session(command="python"), "settings")
    assert "Operators can add others, such as proxy variables, with MCPADMIN_INHERITED_VARIABLES." in html


def test_npx_without_its_yes_is_noticed_in_a_command_that_holds_its_arguments_and_after_the_registration(
    client: Client,
) -> None:
    form = {
        "name": "Acme",
        "transport": "stdio",
        "command": "npx github:acme/acme",
        "era": "auto",
        "environment": "development",
    }
    form |= {"connection_policy": "on_demand", "idle_timeout_seconds": 900, "connect_timeout_seconds": 30}
    form |= {"request_timeout_seconds": 60, "total_timeout_seconds": 600}
    form |= {f"{part}-{name}": 0 for part in ("values", "roots") for name in ("TOTAL_FORMS", "INITIAL_FORMS")}
    refused = client.post("/servers/add/", form | {"name": ""}, secure=True)
    assert refused.status_code == 422
    assert UNCONFIRMED in refused.content.decode()
    registered = client.post("/servers/add/", form, secure=True, follow=True)
    assert [str(message) for message in registered.context["messages"]] == ["Acme is registered.", UNCONFIRMED]


def test_a_connection_test_that_is_held_up_says_what_the_machine_may_need(client: Client) -> None:
    since = (timezone.now() - timedelta(seconds=25)).isoformat()
    hints = held_up("npx", ["github:acme/acme"])
    steps = [{"name": "handshake", "state": "started", "seconds": None, "detail": "", "since": since, "hints": hints}]
    user = get_user_model().objects.get()
    registration = Registration(name="Acme", transport=TransportKind.STDIO, command="npx", arguments=["acme"])
    draft = create_draft(Actor.of_user(user), user, registration)
    ServerDraft.objects.filter(pk=draft.pk).update(state=DraftState.RUNNING, steps=steps)
    html = client.get(f"/servers/test/{draft.uid}/", secure=True).content.decode()
    assert "Starting for" in html
    assert "npx may still be installing the server" in html
    assert UNCONFIRMED in html


def test_a_failed_connection_test_waits_for_none_of_its_further_steps(client: Client) -> None:
    steps = [{"name": "resolve", "state": "failed", "seconds": 0.001, "detail": "The command acme was not found."}]
    user = get_user_model().objects.get()
    registration = Registration(name="Acme", transport=TransportKind.STDIO, command="acme")
    draft = create_draft(Actor.of_user(user), user, registration)
    ServerDraft.objects.filter(pk=draft.pk).update(state=DraftState.FAILED, fault="command_not_found", steps=steps)
    html = client.get(f"/servers/test/{draft.uid}/", secure=True).content.decode()
    assert html.count(">skipped<") == 3
    assert ">waiting<" not in html


def test_a_command_with_quotes_is_shown_as_a_shell_reads_it_with_a_button_to_copy_it(client: Client) -> None:
    words = ["sh", "-c", "echo 'a b' && run", "", "--name=x y"]
    session = make_session(command=words[0], arguments=words[1:])
    assert shlex.split(session.server.endpoint) == words
    for tab in ("tools", "info"):
        html = page(client, session, tab)
        assert "sh -c &#x27;echo &#x27;&quot;&#x27;&quot;&#x27;a b" in html
        assert 'aria-label="Copy the command"' in html
