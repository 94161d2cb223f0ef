"""Invitations and password links, as the person with the link meets them."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.db import IntegrityError
from django.test import Client
from django.utils import timezone

from servers import limits
from servers.accounts import attempts, catalog, links, people
from servers.accounts.links import Invitation, IssuedLink
from servers.audit.record import SYSTEM, Actor
from servers.enums import AuditAction
from servers.models import AccountLink, AuditEvent
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"
NEW = "purple monkey dishwasher"
NINA = {"username": "nina", "email": "", "password1": NEW, "password2": NEW}
AGAIN = {"new_password1": NEW, "new_password2": NEW}


@pytest.fixture(autouse=True)
def no_attempts_yet() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def invited(by: Any = None, **fields: Any) -> IssuedLink:
    return links.invite(Actor.of_user(by) if by else SYSTEM, by, Invitation("Nina", "", **fields))


def path(issued: IssuedLink) -> str:
    return issued.url("")


def events(action: str) -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(action=action))


def users() -> list[str]:
    return list(get_user_model().objects.values_list("username", flat=True))


def test_an_invited_person_chooses_name_and_password_and_is_signed_in_with_the_given_permissions(
    client: Client,
) -> None:
    group = Group.objects.create(name="Night shift")
    group.permissions.set(catalog.permission_rows({"view_server", "call_tool"}))
    issued = invited(groups=[group], permissions=("view_payload",))
    assert "Create your account" in client.get(path(issued)).content.decode()
    answer = client.post(path(issued), NINA)
    assert (answer.status_code, answer["Location"]) == (302, "/")
    nina = get_user_model().objects.get(username="nina")
    assert (nina.is_active, nina.is_superuser, nina.is_staff) == (True, False, False)
    assert catalog.permissions_of(nina) == {"view_server", "call_tool", "view_payload"}
    assert client.session["_auth_user_id"] == str(nina.pk)
    assert client.get("/").status_code == 200
    [event] = events(AuditAction.USER_JOIN)
    assert (event.actor_name, event.subject) == ("nina", "nina")
    assert not AuditEvent.objects.filter(actor_name="").exists()
    assert set(AuditEvent.objects.filter(subject="nina").values_list("actor_name", "way")) == {("nina", "page")}


def _expire(issued: IssuedLink) -> None:
    AccountLink.objects.filter(pk=issued.link.pk).update(expires_at=timezone.now() - timedelta(seconds=1))


def _use(issued: IssuedLink) -> None:
    assert Client().post(path(issued), NINA | {"username": "first"}).status_code == 302


SPOILT: dict[str, Callable[[IssuedLink], Any]] = {
    "expired": _expire,
    "used": _use,
    "revoked": lambda issued: links.revoke(SYSTEM, None, issued.link),
    "renewed": lambda issued: links.reissue(SYSTEM, None, issued.link),
    "gone": lambda issued: issued.link.delete(),
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_whatever_is_wrong_with_a_link_the_answer_is_the_same_and_no_account_is_made(spoil: str) -> None:
    issued = invited()
    SPOILT[spoil](issued)
    before = users()
    wrong = Client().get("/link/no-such-token/")
    for answer in (Client().get(path(issued)), Client().post(path(issued), NINA)):
        assert answer.status_code == wrong.status_code == 404
        assert answer.content.replace(issued.token.encode(), b"no-such-token") == wrong.content
        assert {name for name, _ in answer.items()} == {name for name, _ in wrong.items()}
    assert users() == before


def test_a_renewed_invitation_works_with_its_new_link_also_after_it_was_revoked(client: Client) -> None:
    issued = invited()
    for _ in range(2):
        links.revoke(SYSTEM, None, issued.link)
    assert len(events(AuditAction.LINK_REVOKE)) == 1
    assert client.post(path(links.reissue(SYSTEM, None, issued.link)), NINA).status_code == 302


def test_an_invitation_is_worth_nothing_once_its_issuer_lacks_what_it_gives(client: Client) -> None:
    max_ = person("max", "manage_users", "view_server")
    issued = invited(max_, permissions=("view_server",))
    assert client.get(path(issued)).status_code == 200
    max_.user_permissions.remove(*catalog.permission_rows({"view_server"}))
    assert client.get(path(issued)).status_code == 404
    max_.user_permissions.add(*catalog.permission_rows({"view_server"}))
    assert client.get(path(issued)).status_code == 200
    people.disable(SYSTEM, None, max_)
    assert client.post(path(issued), NINA).status_code == 404
    assert users() == ["max"]


def test_an_invitation_follows_the_permissions_that_its_group_has_when_it_is_used(client: Client) -> None:
    max_, group = person("max", "manage_users"), Group.objects.create(name="grows")
    issued = invited(max_, groups=[group])
    group.permissions.set(catalog.permission_rows({"manage_stdio"}))  # by someone who has the permission; max has not
    assert client.post(path(issued), NINA).status_code == 404
    assert users() == ["max"]


def test_a_link_does_nothing_for_a_browser_in_which_another_person_is_signed_in(client: Client) -> None:
    issued = invited()
    client.force_login(person("vera"))
    for token in (issued.token, "no-such-token"):
        assert client.get(f"/link/{token}/").status_code == 409
        answer = client.post(f"/link/{token}/", NINA)
        assert answer.status_code == 409
        assert "signed in as" in answer.content.decode()
    assert users() == ["vera"]
    assert Client().post(path(issued), NINA).status_code == 302


def test_a_password_link_sets_a_password_signs_in_and_ends_all_other_sign_ins(client: Client) -> None:
    vera, other = person("vera"), Client()
    assert other.login(username="vera", password=PASSWORD)
    issued = links.issue_password_link(SYSTEM, None, vera)
    assert "vera" in client.get(path(issued)).content.decode()
    assert client.post(path(issued), AGAIN)["Location"] == "/"
    assert client.get("/account/").status_code == 200
    assert other.get("/account/").status_code == 302
    assert not Client().login(username="vera", password=PASSWORD)
    assert Client().login(username="vera", password=NEW)
    assert Client().post(path(issued), AGAIN).status_code == 404
    assert [(event.subject, event.actor_name) for event in events(AuditAction.PASSWORD_RESET)] == [("vera", "vera")]
    assert not events(AuditAction.PASSWORD_CHANGE)


def test_a_second_password_link_and_disabling_end_the_first() -> None:
    vera = person("vera")
    first = links.issue_password_link(SYSTEM, None, vera)
    second = links.issue_password_link(SYSTEM, None, vera)
    assert Client().get(path(first)).status_code == 404
    assert Client().get(path(second)).status_code == 200
    people.disable(SYSTEM, None, vera)
    people.enable(SYSTEM, None, vera)
    assert Client().get(path(second)).status_code == 404


@pytest.mark.parametrize(
    ("address", "form"),
    [
        ("/accounts/password/change/", {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW}),
        ("/account/profile/", {"name": "", "email": "new@example.com", "password": PASSWORD}),
    ],
)
def test_a_password_link_dies_when_its_person_changes_password_or_address(address: str, form: dict[str, str]) -> None:
    vera, browser = person("vera"), Client()
    browser.force_login(vera)
    issued = links.issue_password_link(SYSTEM, None, vera)
    assert browser.post("/account/profile/", {"name": "Vera", "email": "", "password": ""}).status_code == 302
    assert Client().get(path(issued)).status_code == 200
    assert browser.post(address, form).status_code == 302
    assert Client().get(path(issued)).status_code == 404


def test_a_password_link_dies_when_its_person_gets_more_permissions_than_its_issuer_has() -> None:
    max_, vera = person("max", "manage_users"), person("vera")
    issued = links.issue_password_link(Actor.of_user(max_), max_, vera)
    assert Client().get(path(issued)).status_code == 200
    vera.user_permissions.add(*catalog.permission_rows({"manage_stdio"}))
    assert Client().post(path(issued), AGAIN).status_code == 404
    assert Client().login(username="vera", password=PASSWORD)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"password2": "another horse battery"}, "match"),
        ({"password1": "short", "password2": "short"}, "too short"),
        ({"password1": "12345678901", "password2": "12345678901"}, "numeric"),
        ({"username": "VERA"}, "already exists"),
        ({"username": "McpAdmin"}, "uses this name for mcpadmin itself"),
        ({"username": "a b"}, "valid username"),
    ],
)
def test_bad_input_is_explained_and_does_not_use_the_link_up(
    client: Client, change: dict[str, str], words: str
) -> None:
    person("vera")
    issued = invited()
    answer = client.post(path(issued), NINA | change)
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert users() == ["vera"]
    assert client.post(path(issued), NINA).status_code == 302


def test_attempts_are_limited_by_address_for_good_links_too(client: Client) -> None:
    issued = invited()
    statuses = [client.get("/link/guess/").status_code for _ in range(limits.number("setup_attempts") + 1)]
    assert statuses == [404] * limits.number("setup_attempts") + [429]
    refused = client.post(path(issued), NINA)
    assert refused.status_code == 429
    assert limits.stated("setup_attempts") in refused.content.decode()
    assert f'href="{path(issued)}"' in refused.content.decode()
    assert users() == []


def test_the_addresses_of_one_ipv6_network_are_counted_as_one() -> None:
    most = limits.number("setup_attempts")
    guesses = [Client(REMOTE_ADDR=f"2001:db8::{number:x}").get("/link/guess/") for number in range(most + 1)]
    assert [guess.status_code for guess in guesses] == [404] * most + [429]
    assert Client(REMOTE_ADDR="2001:db8:0:1::1").get("/link/guess/").status_code == 404


def test_of_two_requests_that_found_a_link_at_the_same_time_one_creates_an_account() -> None:
    link = links.find(invited().token)
    first, second = (get_user_model()(username=name) for name in ("first", "second"))
    links.join(link, first, "192.0.2.1")
    with pytest.raises(links.LinkInvalid):
        links.join(link, second, "192.0.2.2")
    assert users() == ["first"]


def test_of_two_people_who_chose_one_name_in_different_case_at_the_same_time_the_second_chooses_again() -> None:
    first, second = (links.find(invited().token) for _ in range(2))
    links.join(first, get_user_model()(username="Nina"), "192.0.2.1")
    with pytest.raises(IntegrityError):
        links.join(second, get_user_model()(username="nina"), "192.0.2.2")
    assert users() == ["Nina"]
    assert links.works(AccountLink.objects.get(pk=second.pk))


def test_a_form_without_csrf_token_is_refused() -> None:
    assert Client(enforce_csrf_checks=True).post(path(invited()), NINA).status_code == 403
    assert users() == []


def test_a_session_planted_before_is_worth_nothing_afterwards(client: Client) -> None:
    client.session.save()
    planted = client.session.session_key
    client.post(path(invited()), NINA)
    assert client.session.session_key != planted


def test_the_token_is_stored_as_a_digest_only_and_is_in_no_event_and_no_log_line(
    client: Client, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    issued = invited()
    client.get(path(issued))
    client.get(path(issued)[:-1])  # the redirect to the slash
    client.post(path(issued), NINA)
    client.get(path(issued))
    row = AccountLink.objects.get(pk=issued.link.pk)
    assert issued.token not in repr(row.__dict__)
    assert re.fullmatch("[0-9a-f]{64}", row.digest)
    assert issued.token not in "".join(AuditEvent.objects.values_list("body", flat=True))
    assert NEW not in "".join(AuditEvent.objects.values_list("body", flat=True))
    assert issued.token not in repr(issued)
    out = capfd.readouterr()
    assert issued.token not in out.out + out.err


def test_the_page_of_a_link_names_no_referrer_to_others_and_is_not_kept(client: Client) -> None:
    answer = client.get(path(invited()))
    assert answer["Referrer-Policy"] == "same-origin"
    assert "no-store" in answer["Cache-Control"]
    links_out = re.findall(r'(?:href|src|action)="(https?:)?//', answer.content.decode())
    assert links_out == []


def test_a_cache_that_cannot_be_used_is_no_new_period_in_which_everyone_may_try(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "mcpadmin.cache.SignedRedisCache", "LOCATION": "valkey://redis.internal"}}
    with pytest.raises(ValueError, match="Redis URL must specify"):
        attempts.count("setup", "192.0.2.1")
