"""Repeated wrong passwords are throttled, and a sign-in returns to the page it interrupted."""

import json
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core import signing
from django.core.cache import cache
from django.test import Client
from redis import Redis

from mcpadmin import settings as product
from servers import limits
from servers.enums import AuditAction
from servers.models import AuditEvent

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def _nobody_is_throttled_yet() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def visitor() -> Client:
    get_user_model().objects.create_user("ada", password=PASSWORD)
    return Client(REMOTE_ADDR="192.0.2.9")


def sign_in(visitor: Client, password: str) -> Any:
    return visitor.post("/accounts/login/", {"login": "ada", "password": password})


def failures() -> list[tuple[str, str, str]]:
    events = AuditEvent.objects.filter(action=AuditAction.SIGN_IN_FAILED).order_by("seq")
    return [(event.subject, event.ip, json.loads(event.body)["details"].get("reason", "")) for event in events]


def test_after_five_wrong_passwords_the_next_is_refused_in_words_and_each_is_in_the_log(visitor: Client) -> None:
    for _ in range(5):
        assert "not correct" in sign_in(visitor, "wrong").content.decode()
    for password in ("wrong", PASSWORD):
        said = sign_in(visitor, password).content.decode()
        assert "Limit: 5 failed sign-ins per username in 5 minutes. It cannot be changed." in said
    assert failures() == [("ada", "192.0.2.9", "")] * 5 + [("ada", "192.0.2.9", "throttled")] * 2


def test_after_the_wait_the_right_password_signs_in_from_the_same_address(visitor: Client) -> None:
    for _ in range(6):
        sign_in(visitor, "wrong")
    cache.clear()  # the effect of five minutes on the counters
    assert sign_in(visitor, PASSWORD).headers["Location"] == "/"
    assert AuditEvent.objects.filter(action=AuditAction.SIGN_IN).count() == 1


def test_visitors_by_ipv4_to_a_socket_for_both_kinds_are_counted_each_by_their_own_address(visitor: Client) -> None:
    for number in range(10):
        stranger = Client(REMOTE_ADDR="::ffff:203.0.113.5")
        stranger.post("/accounts/login/", {"login": f"guess-{number}", "password": "wrong"})
    assert sign_in(Client(REMOTE_ADDR="::ffff:203.0.113.5"), PASSWORD).status_code == 200
    assert sign_in(Client(REMOTE_ADDR="::ffff:192.0.2.9"), PASSWORD).status_code == 302


def test_of_two_accounts_whose_names_differ_only_in_case_each_signs_in_by_its_exact_name(visitor: Client) -> None:
    get_user_model().objects.create_user("Ada", password="another " + PASSWORD)
    for name, password in (("ada", PASSWORD), ("Ada", "another " + PASSWORD)):
        answer = visitor.post("/accounts/login/", {"login": name, "password": password})
        assert answer.status_code == 302
        assert visitor.get("/account/").context["user"].get_username() == name
        visitor.logout()
    assert "not correct" in visitor.post("/accounts/login/", {"login": "ADA", "password": PASSWORD}).content.decode()


def test_one_account_signs_in_however_its_name_is_capitalized(visitor: Client) -> None:
    assert visitor.post("/accounts/login/", {"login": "ADA", "password": PASSWORD}).status_code == 302


class Payload:
    """Runs when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


POISONS: dict[str, Callable[[Redis, bytes, Path], Any]] = {
    "a pickle": lambda redis, key, proof: redis.set(key, pickle.dumps(Payload(proof))),
    "garbage": lambda redis, key, proof: redis.set(key, b"\xff{"),
    "a number": lambda redis, key, proof: redis.set(key, 5),
    "JSON": lambda redis, key, proof: redis.set(key, '{"a": [1]}'),
    "another type": lambda redis, key, proof: redis.rpush(key, "x"),
}


@pytest.mark.parametrize("poison", POISONS)
def test_poisoned_rate_limits_run_nothing_and_lock_no_one_out(
    visitor: Client, valkey: Path, settings: Any, tmp_path: Path, poison: str
) -> None:
    settings.CACHES = {"default": product.CACHES["default"] | {"LOCATION": f"unix://{valkey}?db=2"}}
    proof = tmp_path / "ran"
    assert "not correct" in sign_in(visitor, "wrong").content.decode()
    with Redis(unix_socket_path=str(valkey), db=2) as redis:
        keys = redis.keys("*:allauth:rl:*")
        assert keys
        for ending in (b"", b":lock"):
            for key in keys:
                redis.delete(key + ending)
                POISONS[poison](redis, key + ending, proof)
            answer = sign_in(visitor, PASSWORD)
            assert not proof.exists()
            assert answer.headers["Location"] == "/"
            visitor.logout()


@pytest.mark.parametrize("scripted", [False, True])
def test_while_redis_is_away_a_sign_in_is_refused_with_that_reason(
    visitor: Client, settings: Any, tmp_path: Path, scripted: bool
) -> None:
    settings.CACHES = {"default": product.CACHES["default"] | {"LOCATION": f"unix://{tmp_path}/nobody.sock?db=2"}}
    headers = {"X-Requested-With": "XMLHttpRequest", "Accept": "application/json"} if scripted else {}
    form = {"login": "ada", "password": PASSWORD}
    answer = visitor.post("/accounts/login/", form, headers=headers)
    assert answer.status_code == 503
    assert "Redis is not responding" in answer.content.decode()
    assert answer.headers["Content-Type"].startswith("text/plain") is scripted
    visitor.force_login(get_user_model().objects.get(username="ada"))
    changed = {"name": "Ada", "email": "new@example.com", "password": PASSWORD}
    assert visitor.post("/account/profile/", changed).status_code == 503
    assert get_user_model().objects.get(username="ada").email == ""


@pytest.mark.parametrize(
    "address", ["password/reset/", "password/reset/done/", "password/reset/key/1-x/", "password/reset/key/done/"]
)
def test_no_page_promises_a_mail_with_a_new_password(client: Client, address: str) -> None:
    assert client.get(f"/accounts/{address}").templates[0].name == "account/forgotten_password.html"


def test_no_page_promises_a_mail_that_confirms_an_address(client: Client) -> None:
    for address in ("confirm-email/", "confirm-email/some-key/"):
        assert client.get(f"/accounts/{address}").templates[0].name == "account/forgotten_password.html"


# --- browsers that are known -------------------------------------------------------------------------------------------
def strangers_guess(times: int = 8) -> None:
    """From as many addresses, so that only the count of the user name is exhausted."""
    for number in range(times):
        sign_in(Client(REMOTE_ADDR=f"203.0.113.{number}"), "wrong")


def known_browser(visitor: Client) -> Client:
    assert sign_in(visitor, PASSWORD).status_code == 302
    visitor.cookies.pop("mcpadmin_session")
    return visitor


def test_strangers_who_guess_do_not_lock_a_user_out_of_a_browser_that_signed_in_before(visitor: Client) -> None:
    known = known_browser(visitor)
    strangers_guess()
    assert "Too many failed sign-ins" in sign_in(Client(REMOTE_ADDR="198.51.100.7"), PASSWORD).content.decode()
    assert sign_in(known, PASSWORD).headers["Location"] == "/"


def test_a_known_browser_behind_the_address_of_the_stranger_still_signs_in(visitor: Client) -> None:
    known = known_browser(visitor)
    stranger = Client(REMOTE_ADDR="192.0.2.9")
    for _ in range(12):
        sign_in(stranger, "wrong")
    assert sign_in(known, PASSWORD).headers["Location"] == "/"


def test_a_known_browser_has_no_more_tries_than_any_other(visitor: Client) -> None:
    known = known_browser(visitor)
    for _ in range(5):
        assert "not correct" in sign_in(known, "wrong").content.decode()
    assert "Too many failed sign-ins" in sign_in(known, PASSWORD).content.decode()
    assert sign_in(Client(REMOTE_ADDR="198.51.100.7"), PASSWORD).status_code == 302, "the name itself is not locked"


def test_a_cookie_that_is_forged_or_of_another_user_gives_no_more_tries(visitor: Client) -> None:
    get_user_model().objects.create_user("eve", password=PASSWORD)
    eve = Client(REMOTE_ADDR="198.51.100.66")
    eve.post("/accounts/login/", {"login": "eve", "password": PASSWORD})
    own = eve.cookies["mcpadmin_browser"].value
    strangers_guess()
    for cookie in (own, own + "x", "x"):
        stranger = Client(REMOTE_ADDR="198.51.100.66")
        stranger.cookies["mcpadmin_browser"] = cookie
        assert "Too many failed sign-ins" in sign_in(stranger, PASSWORD).content.decode()


def test_the_cookie_of_a_known_browser_names_no_one_and_no_script_reads_it(visitor: Client) -> None:
    cookie = known_browser(visitor).cookies["mcpadmin_browser"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    known = signing.loads(cookie.value, salt="mcpadmin.known-browser")
    # As words: a random token may hold these three letters.
    assert "ada" not in re.split(r"[^A-Za-z0-9]+", json.dumps(known))


def test_too_many_sign_in_requests_get_a_page_that_names_the_limit(visitor: Client) -> None:
    answers = [sign_in(Client(REMOTE_ADDR="198.51.100.8"), "wrong") for _ in range(31)]
    assert answers[-1].status_code == 429
    assert "Limit: 30 sign-in requests per address in a minute. It cannot be changed." in answers[-1].content.decode()


def test_the_limits_on_sign_ins_that_pages_name_are_those_that_are_enforced() -> None:
    assert {
        "login": f"{limits.number('sign_in_requests_per_address')}/m/ip",
        "login_failed": f"{limits.number('sign_in_failures_per_address')}/m/ip,{limits.number('sign_in_failures')}/5m/key",
    } == settings.ACCOUNT_RATE_LIMITS


# --- the page after the sign-in ----------------------------------------------------------------------------------------
def next_of(answer: Any) -> str:
    assert answer.status_code == 302
    target = urlsplit(answer.headers["Location"])
    assert target.path == "/accounts/login/"
    return dict(parse_qsl(target.query)).get("next", "")


def test_a_page_is_where_a_person_comes_back_to(visitor: Client) -> None:
    assert next_of(visitor.get("/servers/?show=all")) == "/servers/?show=all"


@pytest.mark.parametrize(
    ("sent_to", "sent_from", "back"),
    [
        ("/servers/orders/call/?tool=echo", "/servers/orders/tools/?tool=echo", "/servers/orders/tools/?tool=echo"),
        ("/servers/orders/call/?tool=echo", "/servers/orders/call/?tool=echo", "/servers/orders/"),
        ("/servers/orders/call/?tool=echo", "", "/servers/orders/"),
        ("/servers/orders/settings/", "", "/servers/orders/settings/"),
        ("/servers/demo/", "", "/servers/"),
        ("/live/ticket/", "", ""),
    ],
)
def test_a_form_that_was_sent_after_the_sign_in_had_ended_leads_back_to_its_page(
    visitor: Client, sent_to: str, sent_from: str, back: str
) -> None:
    sender = {"Referer": f"http://testserver{sent_from}"} if sent_from else {}
    assert next_of(visitor.post(sent_to, headers=sender)) == back


def test_another_site_is_never_where_a_person_comes_back_to(visitor: Client) -> None:
    answer = visitor.post("/servers/orders/call/", headers={"Referer": "https://elsewhere.example/servers/"})
    assert next_of(answer) == "/servers/orders/"


@pytest.mark.parametrize("given", ["/servers/orders/call/?tool=echo", "/live/ticket/", "/calls/x/", "/no/such/page/"])
def test_an_address_that_answers_no_get_is_not_opened_after_signing_in(visitor: Client, given: str) -> None:
    form = {"login": "ada", "password": PASSWORD, "next": given}
    assert visitor.post("/accounts/login/", form).headers["Location"] == "/"


def test_a_page_that_was_asked_for_is_opened_after_signing_in(visitor: Client) -> None:
    form = {"login": "ada", "password": PASSWORD, "next": "/servers/?show=all"}
    assert visitor.post("/accounts/login/", form).headers["Location"] == "/servers/?show=all"


# --- pages whose sign-in has expired -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name",
    [
        {"HX-Request": "true"},
        {"X-Requested-With": "XMLHttpRequest"},
        {"Accept": "application/json"},
        {"Sec-Fetch-Dest": "empty"},
    ],
)
def test_a_script_is_told_to_sign_in_and_not_given_the_page(visitor: Client, name: dict[str, str]) -> None:
    answer = visitor.post("/servers/orders/tools/form/?tool=echo", headers=name)
    assert (answer.status_code, answer.get("Location")) == (401, None)
    assert answer.headers["HX-Reswap"] == "none", "htmx would put the answer in the place of the form"


def test_a_page_learns_who_is_signed_in_and_which_token_its_forms_need(visitor: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    nobody = strict.get("/accounts/session/").json()
    assert nobody["user"] is None
    form = {"login": "ada", "password": PASSWORD, "csrfmiddlewaretoken": nobody["csrf"]}
    assert strict.post("/accounts/login/", form, headers={"Accept": "application/json"}).status_code == 200
    ada = strict.get("/accounts/session/").json()
    assert ada["user"] == get_user_model().objects.get(username="ada").pk
    script = {"HX-Request": "true"}
    old = strict.post("/live/ticket/", {"csrfmiddlewaretoken": nobody["csrf"]}, headers=script)
    assert (old.status_code, old.headers["X-CSRF"]) == (403, "renew"), "signing in replaced the token"
    assert strict.post("/live/ticket/", {"csrfmiddlewaretoken": ada["csrf"]}, headers=script).status_code == 200


def test_a_person_without_script_still_sees_the_page_that_is_out_of_date(visitor: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    answer = strict.post("/accounts/login/", {"login": "ada", "password": PASSWORD})
    assert answer.status_code == 403
    assert "Nothing was changed" in answer.content.decode()
    assert 'href="/accounts/login/"' in answer.content.decode(), "a reload would send the old form again"
    strict.force_login(get_user_model().objects.get(username="ada"))
    sent_from = {"Referer": "http://testserver/servers/?state=failing"}
    page = strict.post("/servers/orders/connect/", headers=sent_from).content.decode()
    assert 'href="/servers/?state=failing"' in page, "the form stands on another page"


def test_the_forms_of_an_account_label_their_fields_in_sentence_case(visitor: Client) -> None:
    form = visitor.get("/accounts/login/").content.decode()
    assert "Keep me signed in" in form
    assert "Remember Me" not in form
    visitor.login(username="ada", password=PASSWORD)
    change = visitor.get("/accounts/password/change/").content.decode()
    assert re.search(r'class="head pad">\s*<div class="title">\s*<h1>\s*Change password\s*</h1>', change)
    for label in ("Current password", "New password", "Confirm new password"):
        assert label in change
    assert "Current Password" not in change
