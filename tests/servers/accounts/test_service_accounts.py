"""Service accounts: permissions and tokens, no sign-in, never more than who manages them has."""

import json
import re
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.test import Client

from servers import access, limits
from servers.accounts import links, people, service_accounts
from servers.accounts.authority import AuthorityExceeded, Refused
from servers.accounts.service_accounts import NewServiceAccount
from servers.agents import tokens
from servers.audit.record import Actor
from servers.enums import AuditAction
from servers.models import AgentToken, AuditEvent
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db(transaction=True)
PERMISSIONS = ("view_server", "call_tool")


@pytest.fixture
def manager(db: None) -> Any:
    return person("max", "manage_users", *PERMISSIONS)


def token(by: Any, account: Any) -> tokens.Issued:
    return tokens.issue_for(Actor.of_user(by), by, account, tokens.NewToken("nightly", 7, ["mcp:list", "mcp:call"]))


def test_a_program_acts_as_a_service_account_with_the_permissions_of_that_account(manager: Any) -> None:
    account = service_accounts.add(
        Actor.of_user(manager), manager, NewServiceAccount("nightly", "The nightly run.", (), PERMISSIONS)
    )
    issued = token(manager, account)
    principal = tokens.principal_of(issued.text, "")
    assert principal.user == account
    assert access.may(principal.user, "call_tool")
    assert not access.may(principal.user, "manage_users")
    event = json.loads(AuditEvent.objects.get(action=AuditAction.AGENT_TOKEN_ISSUE).body)
    assert (event["actor"]["name"], event["details"]["of"]) == ("max", "nightly")
    created = json.loads(AuditEvent.objects.get(action=AuditAction.SERVICE_ACCOUNT_CREATE).body)
    assert created["details"]["purpose"] == "The nightly run."


def test_a_service_account_never_signs_in_and_is_never_a_superuser(manager: Any, admin: Any) -> None:
    account = service_accounts.add(
        Actor.of_user(manager), manager, NewServiceAccount("nightly", permissions=PERMISSIONS)
    )
    for password in ("", "!", "nightly"):
        assert authenticate(None, username="nightly", password=password) is None
    with pytest.raises(Refused, match="never signs in"):
        links.issue_password_link(Actor.of_user(admin), admin, account)
    with pytest.raises(Refused, match="superuser"):
        people.set_permissions(Actor.of_user(admin), admin, account, groups=[], own=PERMISSIONS, superuser=True)


def test_no_one_gives_a_service_account_or_takes_by_its_token_what_they_lack(manager: Any, admin: Any) -> None:
    with pytest.raises(AuthorityExceeded):
        service_accounts.add(
            Actor.of_user(manager), manager, NewServiceAccount("strong", permissions=("manage_stdio",))
        )
    strong = service_accounts.add(
        Actor.of_user(admin), admin, NewServiceAccount("strong", permissions=(*PERMISSIONS, "manage_stdio"))
    )
    with pytest.raises(AuthorityExceeded):
        token(manager, strong)
    assert service_accounts.managed_by(manager) == []
    assert service_accounts.managed_by(admin) == [strong]
    with pytest.raises(access.Denied):
        token(person("carl", *PERMISSIONS), strong)
    with pytest.raises(Refused, match="is a person"):
        token(admin, person("dora", *PERMISSIONS))
    assert not AgentToken.objects.exists()


def test_too_many_tokens_are_said_to_be_those_of_the_service_account(manager: Any) -> None:
    account = service_accounts.add(
        Actor.of_user(manager), manager, NewServiceAccount("nightly", permissions=PERMISSIONS)
    )
    for _ in range(limits.number("agent_tokens")):
        token(manager, account)
    with pytest.raises(ValidationError, match="nightly has too many tokens"):
        token(manager, account)


def test_the_pages_lead_from_a_new_account_to_its_token(manager: Any) -> None:
    client = Client()
    client.force_login(manager)
    assert b"never signs in" in client.get("/users/service-accounts/add/").content
    posted = {"name": "nightly", "purpose": "Runs at night.", "own": list(PERMISSIONS)}
    page = client.post("/users/service-accounts/add/", posted, follow=True)
    assert b"Service account" in page.content
    assert b"Runs at night." in page.content
    assert b"Password link" not in page.content
    account = page.context["person"]
    assert client.post("/users/service-accounts/add/", posted).status_code == 422
    assert b"nightly (service account)" in client.get(f"/agents/tokens/new/?account={account.pk}").content
    new = {"account": str(account.pk), "name": "run", "days": "7", "scopes": ["mcp:list"]}
    shown = client.post("/agents/tokens/new/", new)
    assert tokens.principal_of(shown.context["text"], "").user == account
    assert b"Service account" in client.get("/users/").content
    stranger = Client()
    stranger.force_login(person("carl", *PERMISSIONS))
    assert stranger.post("/agents/tokens/new/", new).status_code == 200  # the field is not his: a token of his own
    assert AgentToken.objects.first().user.username == "carl"


def test_disabling_says_what_becomes_of_tokens_and_says_nothing_of_signing_in_for_a_service_account(
    manager: Any,
) -> None:
    client = Client()
    client.force_login(manager)
    account = service_accounts.add(Actor.of_user(manager), manager, NewServiceAccount("nightly"))
    assert "No permissions." in words(client, account)
    assert "can sign in" not in words(client, account)
    account = service_accounts.add(
        Actor.of_user(manager), manager, NewServiceAccount("hourly", permissions=PERMISSIONS)
    )
    token(manager, account)
    asked = words(client, account, "disable/")
    assert "Agents can no longer use hourly's tokens." in asked
    assert "Agent tokens 1 refused while the account is disabled" in asked
    assert "no longer sign in" not in asked
    assert "Password links" not in asked
    client.post(f"/users/{account.pk}/disable/")
    assert "hourly is enabled. Its tokens work again." in text(client.post(f"/users/{account.pk}/enable/", follow=True))
    carl = person("carl")
    assert "This person can sign in but sees no servers." in words(client, carl)
    asked = words(client, carl, "disable/")
    assert "carl can no longer sign in, and agents can no longer use their tokens." in asked
    assert "Agent tokens None" in asked
    client.post(f"/users/{carl.pk}/disable/")
    assert "can sign in" not in words(client, carl)


def words(client: Client, account: Any, more: str = "") -> str:
    return text(client.get(f"/users/{account.pk}/{more}"))


def text(answer: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())


@pytest.mark.parametrize("name", ["MAX", "\uff2d\uff21\uff38"])  # the second in full-width letters
def test_a_service_account_never_takes_the_name_of_a_person_however_it_is_written(manager: Any, name: str) -> None:
    client = Client()
    client.force_login(manager)
    answer = client.post("/users/service-accounts/add/", {"name": name, "purpose": ""})
    assert answer.status_code == 422
    assert "A user with that username already exists." in answer.content.decode()
    with pytest.raises(IntegrityError):
        service_accounts.add(Actor.of_user(manager), manager, NewServiceAccount(name))
    assert authenticate(None, username="max", password="correct horse battery") == manager
