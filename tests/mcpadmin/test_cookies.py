"""Cookies match each request's scheme: plain http on loopback works in every browser, TLS always marks them Secure.

A cookie jar plays Safari: it neither accepts nor sends Secure cookies over http, not even on loopback. Its walk on
loopback: tests/e2e/test_cookies.py.
"""

import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from tests.peers.peers import free_port
from tests.sessions.mcp.transports.test_client_certificates import made
from tests.tools.stack import ADMIN, ROOT, Stack, clean_environment

LOGIN = {"login": "ada", "password": "correct horse battery"}


class NoSecureOverHttp(DefaultCookiePolicy):
    def set_ok(self, cookie: Cookie, request: Any) -> bool:
        return not (cookie.secure and request.type == "http") and super().set_ok(cookie, request)


def token_of(page: httpx.Response) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
    assert found is not None
    return found[1]


def visitor(base_url: str, **options: Any) -> httpx.Client:
    return httpx.Client(base_url=base_url, cookies=CookieJar(NoSecureOverHttp()), trust_env=False, **options)


def walk_in_and_out(browser: httpx.Client) -> list[Cookie]:
    """Sign in, post with the token of a page and without, sign out, each with the cookies that the jar took. Returns those
    of the signed-in person."""
    origin = str(browser.base_url).rstrip("/")
    browser.headers.update({"Origin": origin, "Referer": f"{origin}/"})
    form = {"login": ADMIN[0], "password": ADMIN[1]}
    assert browser.post("/accounts/login/", data=form).status_code == 403, "a form without its token"
    form["csrfmiddlewaretoken"] = token_of(browser.get("/accounts/login/"))
    assert browser.post("/accounts/login/", data=form).headers["location"] == "/"
    page = browser.get("/servers/")
    assert page.status_code == 200
    assert browser.post("/live/ticket/").status_code == 403
    assert browser.post("/live/ticket/", headers={"X-CSRFToken": token_of(page)}).status_code == 200
    held = list(browser.cookies.jar)
    left = browser.post("/accounts/logout/", data={"csrfmiddlewaretoken": token_of(page)})
    assert left.status_code == 302
    assert browser.get("/servers/").headers["location"].startswith("/accounts/login/")
    return held + list(browser.cookies.jar)


@contextmanager
def proxy_with_tls(folder: Path) -> Iterator[tuple[str, Callable[[str], None]]]:
    """The address of a proxy that ends TLS and forwards what docs/configuration.md asks for, and a function that says
    where to. Its certificate is in `folder`/proxy.pem."""
    pair, behind = made("proxy"), []
    (folder / "proxy.pem").write_text(pair.pem + pair.key_pem)

    class Proxy(BaseHTTPRequestHandler):
        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            told = dict(self.headers) | {"X-Forwarded-For": self.client_address[0], "X-Forwarded-Proto": "https"}
            with httpx.Client(trust_env=False) as onward:
                answer = onward.request(self.command, behind[0] + self.path, headers=told, content=body)
            self.send_response(answer.status_code)
            for name, value in answer.headers.multi_items():
                if name not in ("content-encoding", "content-length", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = forward  # the names that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "proxy.pem")
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}", behind.append
    server.shutdown()
    server.server_close()


@pytest.mark.long
@pytest.mark.up
def test_behind_a_proxy_with_tls_every_cookie_is_secure_and_for_this_host_alone(
    make_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    with proxy_with_tls(tmp_path) as (address, forward_to):
        settings = {"MCPADMIN_PUBLIC_URL": address, "MCPADMIN_TRUSTED_PROXIES": "1"}
        port = free_port()
        make_stack("--port", str(port), env=settings, administrator=True).start()
        forward_to(f"http://127.0.0.1:{port}")
        with visitor(address, verify=ssl.create_default_context(cafile=str(tmp_path / "proxy.pem"))) as browser:
            cookies = walk_in_and_out(browser)
    names = {"__Host-session", "__Host-csrf", "__Host-browser", "__Host-messages"}
    assert {cookie.name for cookie in cookies} == names
    assert {(cookie.secure, cookie.path, cookie.domain_specified) for cookie in cookies} == {(True, "/", False)}


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
