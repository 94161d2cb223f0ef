"""Tokens of agents: issued once, checked at each request, revoked for good."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from servers import access, limits
from servers.agents import tokens
from servers.agents.tokens import NewToken, Unknown
from servers.audit.record import Actor
from servers.enums import AuditAction
from servers.models import AgentToken, AuditEvent, Server
from tests.servers.conftest import person
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db(transaction=True)
LIST, CALL = "mcp:list", "mcp:call"


@pytest.fixture
def ann(db: None) -> Any:
    return person("ann", "view_server", "call_tool")


def issue(user: Any, **more: Any) -> tokens.Issued:
    fields: dict[str, Any] = {"name": "laptop", "days": 7, "scopes": [LIST, CALL]}
    return tokens.issue(Actor.of_user(user), user, NewToken(**fields | more))


def why(text: str, address: str = "192.0.2.1") -> str:
    with pytest.raises(Unknown) as unknown:
        tokens.principal_of(text, address)
    return unknown.value.why


def test_a_token_proves_its_person_and_only_its_digest_is_stored(ann: Any) -> None:
    issued = issue(ann)
    principal = tokens.principal_of(issued.text, "192.0.2.1")
    assert principal.user == ann
    assert (principal.has(LIST), principal.has("mcp:read")) == (True, False)
    secret = issued.text[-43:]
    stored = AgentToken.objects.values().get()
    assert secret not in str(stored)
    assert secret not in str(list(AuditEvent.objects.values_list("body", flat=True)))
    assert len(issued.text) == len("mca_") + 12 + 1 + 43


def test_wrong_texts_prove_nothing(ann: Any) -> None:
    issued = issue(ann)
    head, secret = issued.text[:-44], issued.text[-43:]
    other = issue(ann, name="other").text[-43:]
    for text in ("", "mca_", head, f"{head}_{other}", f"{head}_{secret}x", issued.text.upper(), f"{issued.text}\n"):
        assert why(text) == "no such token"


def test_an_ended_token_or_account_counts_no_more(ann: Any) -> None:
    issued = issue(ann)
    AgentToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert why(issued.text) == "expired"
    issued = issue(ann)
    assert tokens.revoke(Actor.of_user(ann), ann, issued.token)
    assert not tokens.revoke(Actor.of_user(ann), ann, issued.token)
    assert why(issued.text) == "revoked"
    issued = issue(ann)
    ann.is_active = False
    ann.save()
    assert why(issued.text) == "the account is disabled"


@pytest.mark.parametrize(
    ("address", "inside"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("192.0.2.1", False), ("2001:db8::5", True), ("", False)],
)
def test_a_token_works_only_from_its_addresses(ann: Any, address: str, inside: bool) -> None:
    issued = issue(ann, addresses=["10.1.0.0/16", "2001:db8::/32"])
    if inside:
        assert tokens.principal_of(issued.text, address)
    else:
        assert why(issued.text, address) == f"used from {address}"


def test_an_address_that_is_none_is_refused_in_the_form(ann: Any) -> None:
    with pytest.raises(ValidationError, match="not an address"):
        issue(ann, addresses=["10.0.0.0/8", "my-laptop"])
    assert not AgentToken.objects.exists()


def test_servers_and_tools_bound_what_it_reaches(ann: Any) -> None:
    files, other = make_session("files").server, make_session("other").server
    principal = tokens.principal_of(issue(ann, servers=[files], tools=["search_*", "read"]).text, "")
    assert (principal.reaches(files.pk), principal.reaches(other.pk)) == (True, False)
    allowed = {name for name in ("search_all", "read", "reader", "Search_x") if principal.may_use(name)}
    assert allowed == {"search_all", "read"}
    files.delete()
    assert not tokens.principal_of(issue(ann, servers=[other]).text, "").reaches(files.pk or 0)


def test_a_token_whose_servers_are_gone_does_not_become_one_for_all(ann: Any) -> None:
    files, other = make_session("files").server, make_session("other").server
    issued = issue(ann, servers=[files])
    Server.objects.filter(pk=files.pk).delete()
    assert not tokens.principal_of(issued.text, "").reaches(other.pk)


def test_issuing_needs_permission_to_call_and_is_recorded_with_what_it_allows(ann: Any) -> None:
    with pytest.raises(access.Denied):
        issue(person("vera", "view_server"))
    token = issue(ann, tools=["a"]).token
    event = AuditEvent.objects.get(action=AuditAction.AGENT_TOKEN_ISSUE)
    details = json.loads(event.body)["details"]
    assert (details["token"], details["scopes"], details["tools"]) == (str(token.uid), [LIST, CALL], ["a"])


def test_only_those_who_manage_users_revoke_tokens_of_others(ann: Any, admin: Any) -> None:
    token = issue(ann).token
    bob = person("bob", "view_server", "call_tool")
    with pytest.raises(access.Denied):
        tokens.revoke(Actor.of_user(bob), bob, token)
    assert tokens.principal_of(issue(ann, name="b").text, "")
    assert tokens.revoke(Actor.of_user(admin), admin, token)
    assert list(tokens.visible_tokens(bob)) == []
    assert tokens.visible_tokens(admin).count() == 2


def test_the_number_of_tokens_is_bounded(ann: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens.limits, "number", lambda name: 1)
    issue(ann)
    with pytest.raises(ValidationError) as refused:
        issue(ann)
    assert limits.stated("agent_tokens") in " ".join(refused.value.messages)


def test_the_page_issues_shows_once_and_revokes(ann: Any) -> None:
    client = Client()
    client.force_login(ann)
    server = make_session("files").server
    posted = {"name": "Laptop", "days": "7", "scopes": [LIST, CALL], "servers": [str(server.uid)]}
    assert b"No tokens yet" in client.get("/agents/").content
    bad = client.post("/agents/tokens/new/", posted | {"scopes": [], "addresses": "x"})
    assert bad.status_code == 422
    shown = client.post("/agents/tokens/new/", posted)
    text = shown.context["text"]
    assert text.encode() in shown.content
    assert shown["Cache-Control"].startswith("max-age=0") or "no-store" in shown["Cache-Control"]
    listed = client.get("/agents/").content
    assert b"Laptop" in listed
    assert text[-43:].encode() not in listed
    token = AgentToken.objects.get()
    assert list(token.servers.all()) == [server]
    client.post(f"/agents/tokens/{token.uid}/revoke/")
    assert why(text) == "revoked"
    stranger = Client()
    stranger.force_login(person("eve", "view_server", "call_tool"))
    assert b"Laptop" not in stranger.get("/agents/").content
    assert stranger.post(f"/agents/tokens/{token.uid}/revoke/").status_code == 404
