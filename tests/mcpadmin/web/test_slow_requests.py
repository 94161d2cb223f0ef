"""A request that does not arrive in time is closed; what legitimately lasts long is not."""

import asyncio
import threading

import pytest

from tests.mcpadmin.web.raw import Raw, head
from tests.sessions.live.site import Site

HALF = {
    "half a line": b"POST /accounts/log",
    "half of the headers": b"POST /accounts/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le",
    "half a body": head("POST", "/accounts/login/", Content_Length="100") + b"login=a",
    "half a chunk": head("POST", "/accounts/login/", Transfer_Encoding="chunked") + b"ff\r\nlogin",
    "half a handshake": b"GET /ws/ HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-We",
}


@pytest.mark.parametrize("sent", HALF.values(), ids=HALF)
def test_a_half_sent_request_is_closed_and_told_why(site: Site, sent: bytes) -> None:
    with Raw(site) as raw:
        raw.send(sent)
        answer = raw.answer()
        assert answer.status == 408
        assert (
            "Limit: 1 s to send a whole request. An operator can change it with MCPADMIN_REQUEST_SECONDS."
            in answer.text
        )
        assert raw.is_closed()


def test_a_connection_that_sends_nothing_is_closed(site: Site) -> None:
    with Raw(site) as raw:
        assert raw.is_closed()


def test_a_byte_now_and_then_does_not_keep_a_request_open(site: Site) -> None:
    with Raw(site) as raw:
        raw.send(head("POST", "/accounts/login/", Content_Length="10000"))
        over = threading.Event()

        def trickle() -> None:
            while not over.wait(0.1) and raw.send(b"a"):
                pass

        sender = threading.Thread(target=trickle)
        sender.start()
        assert raw.answer().status == 408
        over.set()
        sender.join()


def test_many_half_sent_requests_are_all_closed(site: Site) -> None:
    raws = [Raw(site) for _ in range(90)]
    for raw in raws:
        raw.send(b"GET / HTTP/1.1\r\nHost: ")
    assert all(raw.is_closed() for raw in raws)


def test_a_second_request_has_the_whole_time_again(site: Site) -> None:
    with Raw(site) as raw:
        for _ in range(3):
            raw.send(head("GET", "/healthz"))
            assert raw.answer().status == 200


async def test_a_live_connection_lasts_longer_than_a_request_may(site: Site) -> None:
    async with site.browser("ada").tab() as tab:
        with Raw(site) as raw:  # after two of these the time of a request is over twice
            assert await asyncio.to_thread(raw.is_closed)
        with Raw(site) as raw:
            assert await asyncio.to_thread(raw.is_closed)
        assert (await tab.ask(op="ping"))["op"] == "pong"


async def test_a_handshake_without_a_sign_in_is_closed(site: Site) -> None:
    browser = site.browser("ada")
    browser.cookie = ""
    async with browser.dial() as connection:
        async with asyncio.timeout(20):
            await connection.wait_closed()
    assert connection.close_code == 4401
