"""What the thread of the host does to its worker when it fails."""

import os
import signal
import threading

import pytest

from sessions.host.loop import HostThread


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The signals that the host sends."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *signalled: found.append(signalled))
    return found


def test_a_host_that_fails_at_its_start_ends_its_worker(
    sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(host: HostThread) -> None:
        raise OSError("no descriptor is free")

    monkeypatch.setattr(HostThread, "_serve", failing)
    host = HostThread("worker1@here")
    host.start()
    host._thread.join(20)
    assert sent == [(os.getpid(), signal.SIGTERM)]
    assert host.stop()


def test_a_host_that_fails_while_it_is_stopped_leaves_the_worker_to_its_own_end(
    sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = threading.Event()

    async def failing(host: HostThread) -> None:
        serving.set()
        await host._stop.wait()
        raise OSError("the drain failed")

    monkeypatch.setattr(HostThread, "_serve", failing)
    host = HostThread("worker1@here")
    host._thread.start()
    assert serving.wait(20)
    assert host.stop()
    assert sent == []
