"""An answer that ends before its time ends for the client too: it never waits for the rest."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mcpadmin.web.raw import Raw, head
from tests.sessions.live.site import Site


class Breaking(Site):
    APPLICATION = "tests.mcpadmin.web.broken_answers:application"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="web-") as directory:
        running = Breaking(Path(directory))
        yield running
        running.stop()


@pytest.mark.parametrize("path", ["/short/", "/broken/"])
def test_an_answer_that_breaks_off_closes_its_connection_and_is_in_the_log(site: Site, path: str) -> None:
    with Raw(site) as raw:
        raw.send(head("GET", path))
        assert raw.is_closed()
    assert f"the response to GET {path} was cut off" in site.log()


def test_the_head_of_a_short_answer_keeps_its_connection(site: Site) -> None:
    with Raw(site) as raw:
        raw.send(head("HEAD", "/short/") + head("GET", "/healthz"))
        assert b"Content-Length: 1000" in raw.until(b"\r\n\r\n")
        assert b"200 OK" in raw.until(b"\r\n\r\n")


def test_a_request_that_fails_has_a_page_also_after_an_answer_broke_off(site: Site) -> None:
    with Raw(site) as raw:
        raw.send(head("GET", "/broken/"))
        assert raw.is_closed()
    with Raw(site) as raw:
        raw.send(head("GET", "/failing/"))
        assert raw.answer().status == 500
