"""Every answer carries the security headers: pages, health probes, errors, and what the server answers below Django."""

from http import HTTPStatus
from typing import Any, get_args

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import include, path

from mcpadmin.headers import headers_for, security_headers
from mcpadmin.web import pages

pytestmark = pytest.mark.django_db
NAMES = {
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "Referrer-Policy",
    "Permissions-Policy",
    "Cross-Origin-Opener-Policy",
    "Cross-Origin-Resource-Policy",
    "Cache-Control",
}


def fails(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("on purpose")


urlpatterns = [path("fails/", fails), path("", include("mcpadmin.urls"))]


def missing(response: Any) -> set[str]:
    return {name for name in NAMES if not response.headers.get(name)}


@pytest.fixture
def ada() -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(get_user_model().objects.create_user("ada", password="correct horse battery"))
    return client


@pytest.mark.parametrize("probe", ["/healthz", "/readyz"])
def test_health_probes_carry_them(probe: str) -> None:
    answer = Client().get(probe)
    assert missing(answer) == set()
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (("get", "/accounts/login/", {}), 200),
        (("get", "/", {"HTTP_HOST": "evil.example"}), 400),
        (("get", "/credentials/add/", {}), 403),
        (("get", "/no/such/page/", {}), 404),
        (("get", "/servers/test/", {}), 405),
    ],
)
def test_errors_of_django_carry_them(ada: Client, asked: tuple[str, str, dict[str, str]], status: int) -> None:
    method, address, more = asked
    ada.cookies.clear() if status == 200 else None
    answer = getattr(ada, method)(address, **more)
    assert (answer.status_code, missing(answer)) == (status, set())


def test_a_page_that_fails_carries_them(ada: Client) -> None:
    with override_settings(ROOT_URLCONF=__name__):
        answer = ada.get("/fails/")
    assert (answer.status_code, missing(answer)) == (500, set())


def test_too_many_sign_ins_carry_them() -> None:
    cache.clear()
    answers = [Client().post("/accounts/login/", {"login": "x", "password": "y"}) for _ in range(31)]
    cache.clear()
    assert (answers[-1].status_code, missing(answers[-1])) == (429, set())


@override_settings(SECURE_SSL_REDIRECT=True)
def test_an_error_of_the_outer_middleware_carries_them() -> None:
    """The redirect to https reads the Host header, and refuses a foreign one before any other middleware runs."""
    answer = Client().get("/", headers={"host": "evil.example"})
    assert (answer.status_code, missing(answer)) == (400, set())


REFUSALS = [
    pages.too_large("body_anonymous_bytes"),
    pages.too_slow(),
    pages.head_too_large(),
    pages.too_many_connections("connections"),
    pages.malformed(),
    pages.sign_in_first(),
    pages.not_checked(),
    pages.failed(500),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: str(int(refusal.status)))
@pytest.mark.parametrize("form", get_args(pages.Form))
def test_what_the_server_answers_below_django_carries_them(refusal: pages.Refusal, form: pages.Form) -> None:
    found, body = refusal.answer(form)
    headers = {name.decode(): value.decode() for name, value in found}
    assert NAMES - headers.keys() == set()
    assert headers["Content-Length"] == str(len(body))
    assert headers["Cache-Control"] == "no-store"
    assert refusal.response().startswith(
        f"HTTP/1.1 {int(refusal.status)} {HTTPStatus(refusal.status).phrase}\r\n".encode()
    )


@pytest.mark.parametrize(
    ("kind", "is_document"),
    [
        ("text/html", True),
        ("image/svg+xml", True),
        ("text/plain", True),
        ("", True),
        ("text/css", False),
        ("font/woff2", False),
    ],
)
def test_what_holds_for_documents_is_left_out_only_where_there_is_none(kind: str, *, is_document: bool) -> None:
    found = headers_for(kind, secure=False)
    assert ("Content-Security-Policy" in found) is is_document
    assert {"X-Content-Type-Options", "Cross-Origin-Resource-Policy", "Referrer-Policy"} <= found.keys()


def test_tls_is_asked_for_where_the_request_came_over_tls() -> None:
    with override_settings(SECURE_HSTS_SECONDS=60):
        assert security_headers(secure=True)["Strict-Transport-Security"] == "max-age=60"
        assert "Strict-Transport-Security" not in security_headers(secure=False)
