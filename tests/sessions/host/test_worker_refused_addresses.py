"""*Test connection* cannot scan the internal network: each refused address gives the same page, and ten attempts are
allowed per minute."""

import re
import socket
from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth import get_user_model
from django.http import HttpResponse
from django.test import Client

from servers.enums import DraftState
from servers.models import ServerDraft
from tests.peers.peers import closed_port
from tests.sessions.host.harness import WorkerProcess, eventually

pytestmark = pytest.mark.integration
ROWS = {f"{name}-{what}_FORMS": "0" for name in ("values", "roots") for what in ("TOTAL", "INITIAL")}
TIMES = {"idle_timeout_seconds": 900, "connect_timeout_seconds": 20, "request_timeout_seconds": 60}
CHOICES = {
    "era": "auto",
    "connection_policy": "on_demand",
    "environment": "development",
    "transport": "streamable_http",
}
FORM = ROWS | TIMES | CHOICES | {"name": "X", "total_timeout_seconds": 600}
TRIES = 10
#: what differs between two requests: durations, times, CSRF tokens
CHANGING = re.compile(
    r"(?:&lt;)?[\d.,]+ m?s\b|<time .*?</time>|X-CSRFToken.*|csrfmiddlewaretoken.*|data-(?:csrf|requested-at)=.*|(?:&lt;)(?=<)"
)


@pytest.fixture
def eve(transactional_db: None) -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("eve", password="correct horse battery"))
    return client


@pytest.fixture
def open_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def tried(eve: Client, place: str) -> HttpResponse:
    return eve.post("/servers/test/", FORM | {"url": f"http://{place}/mcp"})


def shown(eve: Client, place: str) -> tuple[int, str]:
    """Status and text of the page once the test has failed, without its uid and times."""
    answer = tried(eve, place)
    assert answer.status_code == 302, answer.content.decode()
    uid = answer.headers["location"].split("/")[-2]
    over = ServerDraft.objects.filter(uid=uid, state=DraftState.FAILED)
    draft = eventually(over.first, 30, f"{place} was never refused")
    page = eve.get(answer.headers["location"])
    text = page.content.decode().replace(str(draft.uid), "UID")
    return page.status_code, CHANGING.sub("", text)


def test_open_closed_and_filtered_ports_look_alike_and_only_ten_are_tried_in_a_minute(
    start_worker: Callable[..., WorkerProcess], eve: Client, open_port: int
) -> None:
    worker = start_worker(MCPADMIN_ALLOW_LOOPBACK="false")
    places = [f"127.0.0.1:{open_port}", f"127.0.0.1:{closed_port()}", "10.255.255.1:80", "169.254.169.254:80"]
    places += [
        f"localhost:{open_port}",
        f"localhost:{closed_port()}",
        "192.168.1.1",
        "[::1]:80",
        "0x7f.1",
        "100.64.0.1",
    ]
    assert len(places) == TRIES
    assert len({shown(eve, place) for place in places}) == 1
    refused = tried(eve, "10.0.0.1")
    assert refused.status_code == 429
    assert 0 < int(refused.headers["Retry-After"]) <= 60
    assert "Too many addresses were tried" in refused.content.decode()
    assert ServerDraft.objects.count() == TRIES
    assert "169.254.169.254" in worker.output, "the operator can see what was tried"
