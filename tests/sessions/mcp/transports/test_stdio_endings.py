"""Silent, stubborn or orphaned children never block the client, and none is left running."""

import asyncio
import os
import signal
import sys
import time

import pytest

from sessions.mcp.core.errors import Fault, McpError, NotReady, TransportError
from sessions.mcp.core.results import Timeouts
from sessions.mcp.core.state import State
from sessions.mcp.transports.fairness import Share
from sessions.mcp.transports.stdio import Isolation, isolation, prepare_loop
from sessions.mcp.transports.stdio.child import Child

from .making import connected, script, unconnected
from .processes import children, descendants, gone
from .stdio_calls import call, text

pytestmark = pytest.mark.integration


async def test_a_handler_that_fails_does_not_stop_the_reader() -> None:
    def fail(event: object) -> None:
        raise RuntimeError("the owner's own fault")

    client = unconnected(script("server"))
    client._pump._on_event = fail  # replaces the constructor's argument, to fail from the start
    try:
        await client.connect()
        assert text(await client.call_tool("echo", {"text": "alive"})) == "alive"
    finally:
        await client.close()


async def test_a_silent_server_is_lost_after_two_missed_pings() -> None:
    timeouts = Timeouts(keepalive_idle=0.2, keepalive_answer=0.2, keepalive_misses=2)
    async with connected(script("server", "mute"), timeouts=timeouts) as made:
        async with asyncio.timeout(10):
            reason = await made.client.closed
        assert reason is not None
        assert reason.fault is Fault.CONNECTION_LOST


async def test_an_answering_server_stays_through_many_silences() -> None:
    timeouts = Timeouts(keepalive_idle=0.05, keepalive_answer=5)
    async with connected(script("server"), timeouts=timeouts) as made:
        await asyncio.sleep(0.6)
        assert made.client.state is State.READY
        assert await made.client.ping() > 0


async def test_closing_ends_the_child_and_fails_what_waits() -> None:
    before = children()
    async with connected(script("server")) as made:
        waiting = asyncio.create_task(made.client.call_tool("hang", {}))
        await asyncio.sleep(0.1)
        assert children() > before
        await made.client.close()
        with pytest.raises(NotReady) as caught:
            await waiting
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.CLOSED, True)
        assert made.client.closed.result() is None
        await made.client.close()
    assert children() == before


@pytest.mark.parametrize(("ways", "fault"), [((), Fault.PROCESS_EXITED), (("stays",), Fault.CONNECTION_LOST)])
async def test_a_call_to_a_child_whose_input_is_closed_was_certainly_not_executed(
    ways: tuple[str, ...], fault: Fault
) -> None:
    async with connected(script("server", *ways)) as made:
        child = made.client._pump.transport._child  # type: ignore[attr-defined]  # it has one
        child._stdin.close()  # which looks as if the child had closed its end
        results = await asyncio.gather(
            made.client._pump.notify("notifications/roots/list_changed"),
            made.client.call_tool("echo", {"text": "x"}, timeout=10),
            return_exceptions=True,
        )
        for result in results:
            assert isinstance(result, TransportError)
            assert (result.fault, result.may_have_run) == (fault, False)


async def test_a_child_that_does_not_read_blocks_no_one_else_and_is_bounded_by_deadlines() -> None:
    async with connected(script("server")) as other:
        before = children()
        async with connected(script("server")) as made:
            for child in children() - before:
                for pid in descendants(child):
                    os.kill(pid, signal.SIGSTOP)
            big = {"text": "x" * 4_000_000}
            results = await asyncio.gather(
                *(made.client.call_tool("echo", big, timeout=0.5) for _ in range(4)), return_exceptions=True
            )
            assert [getattr(result, "fault", None) for result in results] == [Fault.TIMEOUT] * 4
            assert await call(other, "echo", text="alive") == "alive"


async def test_a_stubborn_child_is_killed_with_everything_it_started() -> None:
    client = unconnected(script("first_words", "stubborn"), era="legacy", timeouts=Timeouts(initialize=1.0))
    connecting = asyncio.create_task(client.connect())
    before = children()
    family: set[int] = set()
    for _ in range(100):
        await asyncio.sleep(0.02)
        family = {pid for child in children() - before for pid in descendants(child)}
        if len(family) >= 2:
            break
    with pytest.raises(McpError):
        await connecting
    assert children() <= before
    if (await isolation()) in (Isolation.PID_NAMESPACE, Isolation.PID_NAMESPACE_USER):
        assert len(family) >= 2
        assert all([await gone(pid) for pid in family])


async def test_a_cancelled_connect_leaves_no_child() -> None:
    before = children()
    connecting = asyncio.create_task(unconnected(script("first_words", "silent")).connect())
    await asyncio.sleep(0.3)
    assert children() > before
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert children() == before


async def test_no_descriptor_is_left_after_many_sessions() -> None:
    async def one() -> None:
        async with connected(script("server")) as made:
            await call(made, "echo", text="x")

    await one()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(8):
        await one()
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_children_are_watched_without_a_thread_each_once_the_loop_is_prepared() -> None:
    await isolation()
    prepare_loop(asyncio.get_running_loop())
    try:
        threads = set(os.listdir("/proc/self/task"))  # some may be those of earlier tests, about to end
        async with connected(script("server")) as made:
            assert await call(made, "echo", text="x") == "x"
            assert set(os.listdir("/proc/self/task")) <= threads
    finally:
        if sys.version_info < (3, 12):
            asyncio.set_child_watcher(None)


WORKER = """
import asyncio, sys
from tests.sessions.mcp.transports.making import script, unconnected
async def main():
    client = unconnected(script("first_words", "stubborn"), era="legacy")
    task = asyncio.create_task(client.connect())
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_when_the_worker_is_killed_nothing_of_the_child_survives() -> None:
    if (await isolation()) not in (Isolation.PID_NAMESPACE, Isolation.PID_NAMESPACE_USER):
        pytest.skip("this machine allows no PID namespace")
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER)
    family: set[int] = set()
    deadline = time.monotonic() + 30
    while len(family) < 4 and time.monotonic() < deadline:  # setpriv becomes unshare; server; grandchild
        await asyncio.sleep(0.1)
        family = descendants(worker.pid)
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    assert len(family) >= 4
    assert all([await gone(pid) for pid in family - {worker.pid}])


async def test_what_a_child_writes_before_its_exit_is_read_although_its_output_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Share, "end", lambda share: 3600.0)
    seen: list[bytes] = []
    rests = asyncio.Event()
    ended = asyncio.get_running_loop().create_future()

    def read(data: bytes) -> None:
        seen.append(data)
        rests.set()

    child = Child(read, lambda data: None, ended.set_result, lambda: True)
    program = "printf burst; read line; printf answer"
    await child.start(("/bin/sh", "-c", program), cwd=None, env={"PATH": os.defpath})
    async with asyncio.timeout(20):
        await rests.wait()
        child.write(b"go\n")
        assert await ended == 0
    await child.stop()
    assert b"".join(seen) == b"burstanswer"
