"""Requests get the right ids, client addresses, headers and health responses."""

import json
import re
import time
from uuid import UUID

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.utils import timezone

from mcpadmin import origin
from mcpadmin.middleware import RequestContextMiddleware
from servers.audit.record import client_ip
from sessions.models import Worker


def answer(**headers: str) -> tuple[HttpRequest, HttpResponse]:
    request = RequestFactory().get("/", headers=headers)
    response = RequestContextMiddleware(lambda _request: HttpResponse("x"))(request)
    return request, response


def test_a_sane_request_id_of_the_proxy_is_kept_and_echoed() -> None:
    request, response = answer(**{"X-Request-ID": "edge-7f3a.0001"})
    assert request.request_id == response["X-Request-ID"] == "edge-7f3a.0001"


@pytest.mark.parametrize("given", ["", "short", "x" * 65, "has space in it", "new\nline-forged", "<script>alert(1)"])
def test_any_other_request_id_is_replaced(given: str) -> None:
    request, response = answer(**{"X-Request-ID": given})
    assert request.request_id == response["X-Request-ID"] != given
    assert len(request.request_id) == 32


def test_without_trusted_proxies_a_forwarded_address_is_ignored(settings: object) -> None:
    settings.TRUSTED_PROXIES = 0
    assert client_ip(RequestFactory().get("/", headers={"X-Forwarded-For": "6.6.6.6"})) == "127.0.0.1"


def test_an_ipv4_visitor_of_a_socket_for_both_kinds_has_an_ipv4_address() -> None:
    assert client_ip(RequestFactory().get("/", REMOTE_ADDR="::ffff:203.0.113.5")) == "203.0.113.5"
    assert origin.client_ip({"client": ["::ffff:203.0.113.5", 5], "headers": []}) == "203.0.113.5"
    assert client_ip(RequestFactory().get("/", REMOTE_ADDR="2001:db8::5")) == "2001:db8::5"


@pytest.mark.parametrize(
    ("proxies", "forwarded", "expected"),
    [
        (1, "6.6.6.6, 198.51.100.7", "198.51.100.7"),
        (2, "6.6.6.6, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        (2, "198.51.100.7", "127.0.0.1"),
        (1, "", "127.0.0.1"),
        (1, "6" * 600 + ", 198.51.100.7", "198.51.100.7"),
        (1, "6.6.6.6:1, 198.51.100.7:41234", "198.51.100.7"),  # as Azure's gateways write it
        (1, "6.6.6.6, [2001:db8::7]:41234", "2001:db8::7"),
        (1, "6.6.6.6, [2001:db8::7]", "2001:db8::7"),
        (1, "6.6.6.6, 2001:db8::7", "2001:db8::7"),
        (1, "6.6.6.6, ::ffff:198.51.100.7", "198.51.100.7"),
    ],
)
def test_the_client_is_the_address_that_our_outermost_proxy_saw(
    settings: object, proxies: int, forwarded: str, expected: str
) -> None:
    settings.TRUSTED_PROXIES = proxies
    assert client_ip(RequestFactory().get("/", headers={"X-Forwarded-For": forwarded})) == expected
    headers = [(b"x-forwarded-for", part.encode()) for part in forwarded.split(", ", 1)]
    assert origin.client_ip({"headers": headers, "client": ("127.0.0.1", 40_000)}) == expected


def test_every_answer_forbids_browser_features_and_caching() -> None:
    _, response = answer()
    assert "camera=()" in response["Permissions-Policy"]
    assert response["Cross-Origin-Resource-Policy"] == "same-origin"
    assert response["Cache-Control"] == "no-store"


@pytest.mark.django_db
def test_a_page_says_to_the_millisecond_when_it_was_requested_so_that_what_came_before_is_no_news(
    admin_client: Client,
) -> None:
    before = time.time_ns() // 1_000_000
    page = admin_client.get("/account/").content.decode()
    requested = int(re.search(r'data-requested-at="(\d+)"', page)[1])
    assert before <= requested <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("path", ["/no/such/page/", f"/oauth/clients/{UUID(int=1)}/delete/"])
def test_what_is_not_found_without_words_of_ours_gets_the_common_ones(admin_client: Client, path: str) -> None:
    answer = admin_client.get(path)
    assert answer.status_code == 404
    assert "The address is wrong, the item was deleted, or you don't have access to it." in answer.content.decode()


def test_what_a_view_does_not_find_is_said_in_its_words(admin_client: Client) -> None:
    answer = admin_client.get("/servers/orders/tools/")
    assert answer.status_code == 404
    assert "This server does not exist, or you don&#x27;t have access to it." in answer.content.decode()


def test_healthz_answers_whatever_host_is_asked_for_and_touches_no_database(client: Client) -> None:
    response = client.get("/healthz", headers={"Host": "10.0.0.9"})
    assert (response.status_code, response.content) == (200, b"ok\n")


async def test_healthz_answers_under_asgi_too() -> None:
    response = await AsyncClient().get("/healthz", headers={"host": "10.0.0.9"})
    assert response.status_code == 200


def worker(age_seconds: float) -> None:
    then = timezone.now() - timezone.timedelta(seconds=age_seconds)
    Worker.objects.create(node="w", machine="m", pid=1, started_at=then, heartbeat_at=then)


@pytest.fixture
def caches_on_valkey(valkey: object, settings: object) -> None:
    location = f"unix://{settings.VALKEY_SOCKET}?db=2"
    settings.CACHES = {"default": {"BACKEND": "mcpadmin.cache.SignedRedisCache", "LOCATION": location}}


@pytest.mark.integration
@pytest.mark.django_db(transaction=True)
def test_readyz_is_200_when_every_part_is_there(client: Client, caches_on_valkey: None) -> None:
    worker(age_seconds=1)
    response = client.get("/readyz")
    assert response.json() == {
        "ready": True,
        "parts": {"database": "ok", "migrations": "ok", "redis": "ok", "worker": "ok"},
    }
    assert response.status_code == 200


@pytest.mark.integration
@pytest.mark.django_db(transaction=True)
def test_readyz_names_a_worker_whose_heartbeat_is_stale(client: Client, caches_on_valkey: None) -> None:
    worker(age_seconds=60)
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["parts"] == {"database": "ok", "migrations": "ok", "redis": "ok", "worker": "failed"}


@pytest.mark.integration
@pytest.mark.django_db(transaction=True)
def test_readyz_says_that_redis_is_away_and_nothing_about_why(client: Client) -> None:
    worker(age_seconds=1)
    location = "unix:///nowhere/user-and-password.sock"
    with override_settings(CACHES={"default": {"BACKEND": "mcpadmin.cache.SignedRedisCache", "LOCATION": location}}):
        response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["parts"]["redis"] == "failed"
    assert "nowhere" not in json.dumps(response.json())
