"""Each toxic does what its name says, in its direction, and also affects open connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.peers.faultproxy import FaultProxy
from tests.peers.proxied import proxied
from tests.peers.toxics import Toxic, late, pieces

SECONDS = 5
SILENCE = 0.15
pytestmark = pytest.mark.integration


class Echo:
    """Echoes what it receives and keeps a copy."""

    def __init__(self) -> None:
        self.heard = b""
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(1 << 16):
                self.heard += chunk
                writer.write(chunk)
        except ConnectionResetError:
            pass
        self.ended.set()
        writer.close()


@asynccontextmanager
async def echo_behind_proxy() -> AsyncIterator[tuple[Echo, FaultProxy]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with FaultProxy("127.0.0.1", server.sockets[0].getsockname()[1], seed=4) as proxy:
        yield echo, proxy
    server.close()


@asynccontextmanager
async def connection(proxy: FaultProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    writer.write(data)
    return await asyncio.wait_for(reader.readexactly(len(data)), SECONDS)


async def silent(read: Callable[[], Awaitable[bytes]]) -> bool:
    try:
        await asyncio.wait_for(read(), SILENCE)
    except TimeoutError:
        return True
    return False


async def test_without_a_toxic_everything_passes_and_an_end_is_passed_on() -> None:
    async with echo_behind_proxy() as (echo, proxy), connection(proxy) as (reader, writer):
        big = bytes(range(256)) * 4_000
        assert await answer(reader, writer, big) == big
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), SECONDS) == b""
        assert echo.heard == big


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
async def test_a_black_hole_swallows_one_direction_until_it_is_taken_away(stream: str) -> None:
    async with echo_behind_proxy() as (echo, proxy), connection(proxy) as (reader, writer):
        assert await answer(reader, writer, b"before") == b"before"
        name = proxy.add("timeout", stream)
        writer.write(b"lost")
        assert await silent(lambda: reader.read(4))
        assert (echo.heard == b"beforelost") == (stream == "downstream")
        proxy.remove(name)
        assert await answer(reader, writer, b"after") == b"after"


async def test_a_black_hole_with_a_time_closes_the_connection_after_it() -> None:
    async with echo_behind_proxy() as (_, proxy), connection(proxy) as (reader, writer):
        assert await answer(reader, writer, b"before") == b"before"
        proxy.add("timeout", timeout=50)
        assert await asyncio.wait_for(reader.read(), SECONDS) == b""


async def test_a_reset_reaches_both_sides() -> None:
    async with echo_behind_proxy() as (echo, proxy), connection(proxy) as (reader, writer):
        assert await answer(reader, writer, b"before") == b"before"
        proxy.add("reset_peer")
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), SECONDS)
        await asyncio.wait_for(echo.ended.wait(), SECONDS)
        with pytest.raises(ConnectionResetError):
            async with connection(proxy) as (later, _):
                await asyncio.wait_for(later.read(1), SECONDS)


async def test_a_limit_closes_after_so_many_bytes() -> None:
    async with echo_behind_proxy() as (_, proxy), connection(proxy) as (reader, writer):
        proxy.add("limit_data", bytes=10)
        writer.write(b"0123456789 and more")
        assert await asyncio.wait_for(reader.read(), SECONDS) == b"0123456789"


async def test_latency_delays_and_keeps_the_order() -> None:
    async with echo_behind_proxy() as (_, proxy), connection(proxy) as (reader, writer):
        proxy.add("latency", latency=2 * SILENCE * 1000, jitter=50)
        writer.write(b"12")
        assert await silent(lambda: reader.readexactly(2))
        writer.write(b"34")
        assert await asyncio.wait_for(reader.readexactly(4), SECONDS) == b"1234"


async def test_slow_close_passes_the_end_on_later() -> None:
    async with echo_behind_proxy() as (_, proxy), connection(proxy) as (reader, writer):
        assert await answer(reader, writer, b"before") == b"before"
        proxy.add("slow_close", delay=2 * SILENCE * 1000)
        writer.write_eof()
        assert await silent(lambda: reader.read())
        assert await asyncio.wait_for(reader.read(), SECONDS) == b""


async def test_a_closed_proxy_refuses_and_comes_back_on_the_same_port() -> None:
    async with echo_behind_proxy() as (_, proxy):
        port = proxy.port
        await proxy.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        await proxy.open()
        async with connection(proxy) as (reader, writer):
            assert await answer(reader, writer, b"back") == b"back"


async def test_a_toxic_spoils_its_share_of_the_connections_only() -> None:
    async with echo_behind_proxy() as (_, proxy):
        proxy.add("timeout", toxicity=0.0)
        async with connection(proxy) as (reader, writer):
            assert await answer(reader, writer, b"lucky") == b"lucky"


async def test_a_proxy_in_a_process_of_its_own_is_told_by_its_control_port() -> None:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    with await asyncio.to_thread(lambda: proxied("127.0.0.1", server.sockets[0].getsockname()[1])) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
        assert await answer(reader, writer, b"before") == b"before"
        await asyncio.to_thread(proxy.black_hole)
        told = await asyncio.to_thread(proxy.state)
        assert [(one["type"], one["stream"]) for one in told["toxics"]] == [
            ("timeout", "upstream"),
            ("timeout", "downstream"),
        ]
        assert (told["accepted"], told["open"]) == (1, 1)
        writer.write(b"lost")
        assert await silent(lambda: reader.read(4))
        await asyncio.to_thread(proxy.clear)
        assert await answer(reader, writer, b"after") == b"after"
        await asyncio.to_thread(proxy.cut)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()
    server.close()


@pytest.mark.parametrize(
    "wire",
    [{"type": "teapot"}, {"type": "latency", "attributes": {"rate": 1}}, {"type": "timeout", "stream": "sideways"}],
)
def test_what_is_no_toxic_is_refused(wire: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"toxic|knows|stream"):
        Toxic.read(wire)


def test_bandwidth_is_seconds_for_bytes_and_a_slicer_cuts_in_small_pieces() -> None:
    dice = FaultProxy("", 0, seed=1).dice
    assert list(pieces(b"x" * 2_000, [Toxic("bandwidth", attributes={"rate": 4})], dice)) == [(b"x" * 2_000, 0.5)]
    sliced = list(pieces(b"abcdef", [Toxic("slicer", attributes={"average_size": 2, "delay": 500_000})], dice))
    assert sliced == [(b"ab", 0.5), (b"cd", 0.5), (b"ef", 0.5)]
    assert 0.05 <= late([Toxic("latency", attributes={"latency": 100, "jitter": 50})], dice) <= 0.15
