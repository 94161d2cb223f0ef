"""The page of agents: who is connected. The page of a new token: shown once and created once, with what each client needs; revoking asks first."""

import json
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from servers.models import AgentToken, OAuthClient
from sessions.agents import overview
from sessions.enums import SessionState
from sessions.models import AgentCall, AgentSession, Call, McpSession
from tests.servers.conftest import person
from tests.sessions.agents.placed import principal_of
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.django_db
FORM = {"name": "Laptop", "days": "7", "scopes": ["mcp:list", "mcp:call"]}


@pytest.fixture
def client() -> Client:
    ann = person("ann", "view_server", "call_tool")
    made = Client()
    made.force_login(ann)
    return made


def sent(number: str = "1") -> dict[str, str]:
    """The part of a form that is another in each page."""
    return {"csrfmiddlewaretoken": number * 64}


def configuration(page: Any, key: str) -> Any:
    return json.loads(next(one.text for one in page.context["configurations"] if one.key == key))


# --- connected agents --------------------------------------------------------------------------------------------------
def test_connected_agents_are_listed_with_their_calls_of_the_last_hour(client: Client) -> None:
    session, now = make_session(), timezone.now()
    token = principal_of(User.objects.get(username="ann")).token
    fields: Any = {"token": token, "server": session.server, "revision": "2025-11-25", "created_at": now}
    busy = AgentSession.objects.create(
        key="busy", program="Busy", last_seen_at=now, streams_until=now + timedelta(minutes=1), **fields
    )
    AgentSession.objects.create(key="idle", program="Idle", last_seen_at=now - timedelta(minutes=5), **fields)
    AgentSession.objects.create(key="gone", program="Gone", last_seen_at=now - timedelta(hours=2), **fields)
    states = {"of yesterday": "failed", "first": "succeeded", "second": "tool_error", "third": "sent"}
    for tool, state in states.items():
        made = now - timedelta(days=1) if tool == "of yesterday" else now
        call = make_call(session, tool)
        Call.objects.filter(pk=call.pk).update(state=state, created_at=made)
        AgentCall.objects.create(call=call, session=busy, token=token, token_name=token.name, request_id=tool)
    hidden = make_call(session, "through another person's session")
    Call.objects.filter(pk=hidden.pk).update(personal=True)
    AgentCall.objects.create(call=hidden, session=busy, token=token, token_name=token.name, request_id="hidden")
    page = client.get("/agents/")
    found = [(one.session.program, one.calls, one.errors, one.streaming) for one in page.context["connected"]]
    assert found == [("Busy", 3, 1, True), ("Idle", 0, 0, False)]
    assert page.context["connected"][0].last.target == "third"
    assert "through another" not in page.content.decode()


# --- created once ------------------------------------------------------------------------------------------------------
def test_old_tokens_that_work_are_before_newer_ones_that_do_not_and_all_are_on_some_page(client: Client) -> None:
    session, now = make_session(), timezone.now()
    old = principal_of(User.objects.get(username="ann"), name="oldest").token
    more = [
        AgentToken(
            user=old.user,
            public_id=f"{number:012}",
            digest=f"{number:064}",
            name=f"n{number:03}",
            expires_at=now + timedelta(days=1),
            revoked_at=now if number % 2 else None,
        )
        for number in range(2 * overview.SHOWN)
    ]
    AgentToken.objects.bulk_create(more)
    AgentSession.objects.create(
        key="old",
        program="Old",
        last_seen_at=now,
        token=old,
        server=session.server,
        revision="2025-11-25",
        created_at=now,
    )
    first, second, third = (client.get(f"/agents/?page={number}") for number in (1, 2, 3))
    assert [one.session.program for one in second.context["connected"]] == ["Old"]
    names = [[token.name for token in page.context["rows"]] for page in (first, second, third)]
    assert names[0] == [f"n{number:03}" for number in range(2 * overview.SHOWN - 2, -1, -2)]
    assert names[1][:2] == ["oldest", f"n{2 * overview.SHOWN - 1:03}"]
    assert names[2] == ["n001"]
    assert "1–200 of 401" in first.content.decode()


def test_who_manages_users_sees_the_tokens_of_one_person_alone(client: Client) -> None:
    old = principal_of(User.objects.get(username="ann"), name="of-ann").token
    bob, eve = person("bob", "view_server", "call_tool"), person("eve", "view_server")
    principal_of(bob, name="of-bob")
    manager = Client()
    manager.force_login(User.objects.create_superuser("root"))
    assert f'href="/agents/?user={bob.pk}">1 active token<' in manager.get(f"/users/{bob.pk}/").content.decode()

    def listed(browser: Client, whose: str) -> set[str]:
        return {token.name for token in browser.get(f"/agents/?user={whose}").context["rows"]}

    assert listed(manager, str(bob.pk)) == {"of-bob"}
    assert listed(manager, "") == listed(manager, "x") == {"of-ann", "of-bob"}
    assert listed(client, str(bob.pk)) == {old.name}
    assert "eve has no tokens" in manager.get(f"/agents/?user={eve.pk}").content.decode()


def test_who_may_not_see_servers_reads_no_name_of_one_beside_the_tokens_of_others() -> None:
    server, now = make_session().server, timezone.now()
    token = principal_of(person("bob", "view_server", "call_tool"), name="of-bob").token
    AgentToken.objects.filter(pk=token.pk).update(every_server=False, tools=["secret_tool_*"])
    token.servers.set([server])
    fields: Any = {"token": token, "server": server, "revision": "2025-11-25", "created_at": now}
    AgentSession.objects.create(key="busy", program="Busy", last_seen_at=now, **fields)
    for manager, sees in ((person("max", "manage_users"), False), (person("mia", "manage_users", "view_server"), True)):
        browser = Client()
        browser.force_login(manager)
        shown = browser.get("/agents/").content.decode()
        assert "of-bob" in shown
        for text in (f">{server.name}<", f"/{server.slug}/", "secret_tool_*", "Connected agents"):
            assert (text in shown) is sees
        assert ("Servers that you can't see" in unescape(shown)) is not sees


def test_reloading_the_page_that_shows_a_token_creates_no_other_token(client: Client) -> None:
    posted = FORM | {"servers": [str(make_session().server.uid)]} | sent()
    assert client.post("/agents/tokens/new/", posted).context["text"]
    again = client.post("/agents/tokens/new/", posted, follow=True)
    assert again.redirect_chain[0][0] == "/agents/"
    assert "shown only once" in again.content.decode()
    assert AgentToken.objects.count() == 1
    client.post("/agents/tokens/new/", posted | sent("2"))
    assert AgentToken.objects.count() == 2


def test_a_form_that_was_refused_may_be_sent_again(client: Client) -> None:
    posted = FORM | {"servers": [str(make_session().server.uid)]} | sent()
    assert client.post("/agents/tokens/new/", posted | {"days": "x"}).status_code == 422
    assert client.post("/agents/tokens/new/", posted).context["text"]


def test_the_summary_of_errors_leads_to_the_group_of_boxes_in_which_none_is_ticked(client: Client) -> None:
    page = client.post("/agents/tokens/new/", FORM | {"scopes": []}).content.decode()
    assert '<a href="#id_scopes">Scopes: Choose at least one.</a>' in page
    assert page.count('id="id_scopes"') == 1


def test_reloading_the_configurations_of_an_endpoint_creates_no_other_token(client: Client) -> None:
    address = f"/agents/use/{make_session().server.slug}/"
    assert client.post(address, {"name": "Laptop", "days": "7"} | sent()).context["text"]
    again = client.post(address, {"name": "Laptop", "days": "7"} | sent(), follow=True)
    assert again.redirect_chain[0][0] == address
    assert AgentToken.objects.count() == 1


def test_reloading_the_page_that_shows_a_clients_secret_adds_no_other_client(admin_client: Client) -> None:
    posted = {"name": "Web", "redirect_uris": "https://example.com/back", "confidential": "on"} | sent()
    first = admin_client.post("/oauth/clients/add/", posted)
    assert first.context["secret"]
    admin_client.post("/oauth/clients/add/", posted)
    assert OAuthClient.objects.count() == 1


def test_the_secret_is_not_kept_in_the_session(client: Client) -> None:
    posted = FORM | {"servers": [str(make_session().server.uid)]} | sent()
    text = client.post("/agents/tokens/new/", posted).context["text"]
    kept = json.dumps(dict(client.session.items()))
    assert text not in kept
    assert sent()["csrfmiddlewaretoken"] not in kept


# --- configurations ----------------------------------------------------------------------------------------------------
def test_each_client_gets_the_shape_that_it_reads(client: Client) -> None:
    server = make_session("files").server
    page = client.post("/agents/tokens/new/", FORM | {"servers": [str(server.uid)]})
    text = page.context["text"]
    header = {"Authorization": f"Bearer {text}"}
    assert configuration(page, "vscode")["servers"][server.slug]["headers"] == header
    assert configuration(page, "windsurf")["mcpServers"][server.slug]["serverUrl"].endswith(f"/mcp/{server.slug}")
    assert configuration(page, "cursor")["mcpServers"][server.slug]["headers"] == header
    assert "VS Code" in page.content.decode()


def test_other_servers_are_named_only_to_a_token_that_can_use_them(client: Client) -> None:
    def shown(*servers: str) -> str:
        return str(client.post("/agents/tokens/new/", FORM | {"servers": list(servers)}).content.decode())

    assert "Replace SERVER with the short name" in shown()
    one, two = (str(make_session(slug).server.uid) for slug in ("one", "two"))
    assert ">one</span>, the only server that the token can use." in shown(one)
    for several in ((one, two), ()):
        assert "replace this name with the short name of another server" in shown(*several)


def test_the_configurations_are_for_a_ready_server_if_there_is_one(client: Client) -> None:
    first, ready = make_session("aaa"), make_session("zzz")
    McpSession.objects.filter(pk=first.pk).update(state=SessionState.DISCONNECTED)
    McpSession.objects.filter(pk=ready.pk).update(state=SessionState.READY)
    posted = FORM | {"servers": [str(first.server.uid), str(ready.server.uid)]}
    page = client.post("/agents/tokens/new/", posted)
    assert list(configuration(page, "cursor")["mcpServers"]) == [ready.server.slug]


# --- revoking ----------------------------------------------------------------------------------------------------------
def test_revoking_asks_first_and_shows_which_token_it_is(client: Client) -> None:
    client.post("/agents/tokens/new/", FORM | {"servers": [str(make_session().server.uid)]})
    token = AgentToken.objects.get()
    address = f"/agents/tokens/{token.uid}/revoke/"
    assert f'href="{address}"' in client.get("/agents/").content.decode()
    page = client.get(address).content.decode()
    assert "Revoke Laptop?" in page
    assert token.shown in page
    assert "Never used" in page
    token.refresh_from_db()
    assert token.revoked_at is None
    client.post(address)
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert client.get(address).status_code == 302, "nothing is left to revoke"
