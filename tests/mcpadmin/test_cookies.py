"""Cookies match each request's scheme: plain http on loopback works in every browser, TLS always marks them Secure.

A cookie jar plays Safari: it neither accepts nor sends Secure cookies over http, not even on loopback.
"""

import re
import subprocess
import sys
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from typing import Any

import httpx
import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from tests.tools.stack import ADMIN, ROOT, Stack, clean_environment

LOGIN = {"login": "ada", "password": "correct horse battery"}


class NoSecureOverHttp(DefaultCookiePolicy):
    def set_ok(self, cookie: Cookie, request: Any) -> bool:
        return not (cookie.secure and request.type == "http") and super().set_ok(cookie, request)


def token_of(page: httpx.Response) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
    assert found is not None
    return found[1]


@pytest.mark.up
def test_a_browser_that_takes_no_secure_cookie_over_http_signs_in_on_loopback(stack: Stack) -> None:
    with httpx.Client(base_url=stack.base_url, cookies=CookieJar(NoSecureOverHttp()), trust_env=False) as browser:
        token = token_of(browser.get("/accounts/login/"))
        form = {"login": ADMIN[0], "password": ADMIN[1], "csrfmiddlewaretoken": token}
        assert browser.post("/accounts/login/", data=form).headers["location"] == "/"
        assert browser.get("/servers/").status_code == 200
        token = token_of(browser.get("/servers/"))
        assert browser.post("/live/ticket/", headers={"X-CSRFToken": token}).status_code == 200


def marks(
    settings: Any, public_url: str, host: str = "127.0.0.1", *, secure: bool = False, **headers: str
) -> set[bool]:
    """Whether the cookies of a sign-in are Secure, with the settings that `public_url` implies."""
    get_user_model().objects.filter(username="ada").delete()
    get_user_model().objects.create_user("ada", password=LOGIN["password"])
    settings.PUBLIC_URL = public_url
    settings.ALLOWED_HOSTS = ["*"]
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = public_url.startswith("https:")
    client = Client(headers={"Host": host, **headers})
    answer = client.post("/accounts/login/", LOGIN, secure=secure)
    assert answer.status_code == 302, answer.content.decode()[:500]
    assert len(answer.cookies) >= 2
    return {bool(cookie["secure"]) for cookie in answer.cookies.values()}


LOOPBACK = "http://127.0.0.1:8000"


@pytest.mark.django_db
@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "[::1]:8000"])
def test_cookies_are_plain_where_the_browser_speaks_http_to_loopback(settings: Any, host: str) -> None:
    assert marks(settings, LOOPBACK, host) == {False}


@pytest.mark.django_db
def test_cookies_are_plain_on_a_public_address_without_tls(settings: Any) -> None:
    assert marks(settings, "http://control.lan:8000", "control.lan:8000") == {False}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-Proto": "https"},
        {"X-Forwarded-Proto": "https, http"},
        {"Forwarded": 'for=192.0.2.1;proto="https"'},
        {"X-Forwarded-Ssl": "on"},
        {"Front-End-Https": "On"},
        {"CF-Visitor": '{"scheme":"https"}'},
        {"Origin": "https://127.0.0.1"},
    ],
)
def test_a_proxy_that_ends_tls_is_enough_for_secure_cookies(settings: Any, headers: dict[str, str]) -> None:
    assert marks(settings, LOOPBACK, **headers) == {True}


@pytest.mark.django_db
def test_a_host_that_is_neither_loopback_nor_the_public_one_gets_secure_cookies(settings: Any) -> None:
    assert marks(settings, LOOPBACK, "control.example") == {True}


@pytest.mark.django_db
def test_https_and_a_public_https_address_always_get_secure_cookies(settings: Any) -> None:
    assert marks(settings, LOOPBACK, secure=True) == {True}
    assert marks(settings, "https://control.example", "127.0.0.1") == {True}
    assert marks(settings, "https://control.example", "control.example", secure=True) == {True}


def test_names_promise_the_host_only_where_the_public_address_is_https() -> None:
    """Every browser refuses a `__Host-` cookie that is not Secure."""
    names = {url: _names(url) for url in (LOOPBACK, "http://control.lan", "https://control.example")}
    assert names[LOOPBACK] == names["http://control.lan"] == "mcpadmin_session mcpadmin_csrf False"
    assert names["https://control.example"] == "__Host-session __Host-csrf True"


def _names(public_url: str) -> str:
    code = (
        "from mcpadmin import settings as s; print(s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME, s.SESSION_COOKIE_SECURE)"
    )
    env = clean_environment(MCPADMIN_PUBLIC_URL=public_url, MCPADMIN_SECRET_KEY="x", MCPADMIN_KEYRING="x")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()
