"""Who reads an answer slowly, or not at all, does not keep it in the memory of the web process."""

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mcpadmin.web.raw import Raw, head
from tests.mcpadmin.web.sizes import DOWNLOAD, LARGE, MIB, MOST_HELD, STREAM
from tests.sessions.live.site import Site


class Slow(Site):
    APPLICATION = "tests.mcpadmin.web.slow_readers:application"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="web-") as directory:
        running = Slow(Path(directory), MCPADMIN_REQUEST_SECONDS="4")
        yield running
        running.stop()
        print(running.log())


class Reader(Raw):
    """With little room for what it does not read. `address`: its own."""

    def __init__(self, site: Site, address: str = "127.0.0.1") -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self.socket.settimeout(20)
        self.socket.bind((address, 0))
        self.socket.connect(("127.0.0.1", site.port))

    def read(self, most: int, pause: float = 0.0) -> int:
        """Reads 256 KiB or so after each pause, until the end or `most`. Returns how much came."""
        found = 0
        with contextlib.suppress(ConnectionError):
            while found < most and (piece := self.socket.recv(256 * 1024)):
                found += len(piece)
                time.sleep(pause)
        return found


def made(site: Site) -> int:
    with Raw(site) as raw:
        raw.send(head("GET", "/made/"))
        return int(raw.answer().text)


@pytest.mark.parametrize(("pause", "whole"), [(0.15, False), (0.02, True)], ids=["slowly", "faster"])
def test_who_takes_an_answer_too_slowly_is_cut_off(site: Site, pause: float, whole: bool) -> None:
    with Reader(site) as reader:
        reader.send(head("GET", "/large/"))
        assert (reader.read(LARGE, pause) >= LARGE) == whole


def test_when_too_much_waits_to_be_read_those_who_hold_most_give_way_and_no_other_address(site: Site) -> None:
    with contextlib.ExitStack() as open_readers:
        other = open_readers.enter_context(Reader(site, "127.0.0.2"))
        other.send(head("GET", "/large/"))
        readers = [open_readers.enter_context(Reader(site)) for _ in range(12)]
        for reader in readers:
            reader.send(head("GET", "/large/"))
            time.sleep(0.05)
        assert other.read(LARGE) >= LARGE
        whole = sum(reader.read(LARGE) >= LARGE for reader in readers)
    assert whole <= MOST_HELD // (LARGE - 4 * MIB)


def test_a_download_is_made_no_faster_than_it_is_read(site: Site) -> None:
    with Reader(site) as reader:
        reader.send(head("GET", "/download/"))
        first = reader.read(MIB)
        time.sleep(0.5)
        assert made(site) < 32 * MIB
        assert first + reader.read(DOWNLOAD - first) >= DOWNLOAD
    assert made(site) == DOWNLOAD


def test_the_stream_of_an_agent_never_waits_for_its_reader(site: Site) -> None:
    with Reader(site) as reader:
        reader.send(head("GET", "/mcp/files"))
        assert reader.read(MIB) >= MIB
        assert made(site) == STREAM


def test_a_download_that_is_not_read_any_more_ends(site: Site) -> None:
    with Reader(site) as reader:
        reader.send(head("GET", "/download/"))
        time.sleep(6)
        assert reader.read(DOWNLOAD) < DOWNLOAD
