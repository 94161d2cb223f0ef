"""Hostile bytes below the message level: HTTP heads and bodies, events, WebSocket frames. Each ends its call at once
with one of our errors, and no other exception escapes."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sessions.mcp.core.errors import Fault, McpError
from sessions.mcp.transports.registry import WebSocketSpec
from tests.peers.hostile import frames
from tests.peers.hostile.server import Hostile
from tests.sessions.mcp.transports.making import LOCAL, connected, http, unconnected
from tests.sessions.mcp.transports.scripted_http import Asked, Line, legacy, scripted_http

OK = b"HTTP/1.1 200 OK\r\n"
JSON = OK + b"Content-Type: application/json\r\n"
STREAM = OK + b"Content-Type: text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
GOOD = b'{"jsonrpc":"2.0","id":1,"result":{}}'

#: answers to a call; the server closes the connection after each
ANSWERS = {
    "nothing": b"",
    "one byte": b"H",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "HTTP/0.9": b"{}",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS alert": b"\x15\x03\x01\x00\x02\x02\x28",
    "version 9.9": b"HTTP/9.9 200 OK\r\n\r\n",
    "status 99": b"HTTP/1.1 99 X\r\n\r\n",
    "status 999": b"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n",
    "status -1": b"HTTP/1.1 -1 X\r\n\r\n",
    "status in words": b"HTTP/1.1 OK\r\n\r\n",
    "status in other digits": "HTTP/1.1 ２００ OK\r\n\r\n".encode(),
    "switching protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + GOOD,
    "head cut short": OK + b"Content-Type: appl",
    "header without colon": OK + b"Content-Type\r\n\r\n",
    "header without name": OK + b": x\r\n\r\n",
    "NUL in a header": OK + b"X: a\0b\r\n\r\n",
    "bare CR in a header": OK + b"X: a\rY: b\r\n\r\n",
    "folded header": OK + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "length not a number": JSON + b"Content-Length: x\r\n\r\n",
    "length negative": JSON + b"Content-Length: -1\r\n\r\n",
    "length huge": JSON + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n" + GOOD,
    "length of 5000 digits": JSON + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n" + GOOD,
    "two lengths": JSON + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "length and chunks": JSON + b"Content-Length: 2\r\n" + CHUNKED + b"0\r\n\r\n",
    "body shorter than its length": JSON + b"Content-Length: 1000\r\n\r\n" + GOOD,
    "empty body": JSON + b"Content-Length: 0\r\n\r\n",
    "chunk size in words": JSON + CHUNKED + b"xyz\r\n{}\r\n0\r\n\r\n",
    "chunk size negative": JSON + CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
    "chunk size huge": JSON + CHUNKED + b"f" * 40 + b"\r\n{}\r\n",
    "chunk cut short": JSON + CHUNKED + b"ff\r\n{}",
    "chunk without its end": JSON + CHUNKED + b"2\r\n{}0\r\n\r\n",
    "transfer encoding unknown": JSON + b"Transfer-Encoding: x-rot13\r\n\r\n{}",
    "gzip that is none": JSON + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    "gzip cut short": JSON + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\n\x1f\x8b\x08\0\0",
    "encoding of 50,000 characters": JSON + b"Content-Encoding: " + b"x" * 50_000 + b"\r\nContent-Length: 0\r\n\r\n",
    "content type not ASCII": OK + b"Content-Type: \xff\xfe\r\nContent-Length: 2\r\n\r\n{}",
    "charset unknown": OK + b"Content-Type: application/json; charset=x-none\r\nContent-Length: 2\r\n\r\n{}",
    "redirect to nowhere": b"HTTP/1.1 307 X\r\nContent-Length: 0\r\n\r\n",
    "redirect to rubbish": b"HTTP/1.1 307 X\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n",
    "redirect to a file": b"HTTP/1.1 307 X\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
    "redirect to bytes": b"HTTP/1.1 307 X\r\nLocation: \xff\xfe\r\nContent-Length: 0\r\n\r\n",
    "redirect with a port of 99 digits": b"HTTP/1.1 307 X\r\nLocation: http://a:" + b"9" * 99 + b"/\r\n\r\n",
    "retry after rubbish": b"HTTP/1.1 429 X\r\nRetry-After: " + b"9" * 400 + b"\r\nContent-Length: 0\r\n\r\n",
    "retry after the year 99999": b"HTTP/1.1 503 X\r\nRetry-After: Sun, 06 Nov 99999 08:49:37 GMT\r\n"
    b"Content-Length: 0\r\n\r\n",
    "retry after a year beyond numbers": b"HTTP/1.1 503 X\r\nRetry-After: Sun, 06 Nov " + b"9" * 40
    + b" 08:49:37 GMT\r\nContent-Length: 0\r\n\r\n",
    "retry after other digits": "HTTP/1.1 503 X\r\nRetry-After: ²\r\nContent-Length: 0\r\n\r\n".encode("latin-1"),
    "challenge of bytes": b"HTTP/1.1 401 X\r\nWWW-Authenticate: \xff\"\\\r\nContent-Length: 0\r\n\r\n",
    "stream: nothing": STREAM + b"Content-Length: 0\r\n\r\n",
    "stream: rubbish": STREAM + b"\r\n\xff\0\r\rdata\n\n::\nid\n\nretry:x\n\nevent:\n\n",
    "stream: retry for ever": STREAM + b"\r\nretry: " + b"9" * 5000 + b"\n\n",
    "stream: an id unfit for a header": STREAM + b"\r\nid: a\xc3\xa9\ndata:\n\n",
    "stream: data that is no message": STREAM + b"\r\ndata: {\n\n",
    "stream: many carriage returns": STREAM + b"\r\n" + b"\r" * 10_000,
    "stream: cut in a character": STREAM + b"\r\ndata: {\"a\":\"\xe2\x82",
    "stream: length lies": STREAM + b"Content-Length: 5\r\n\r\ndata: " + GOOD + b"\n\n",
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
async def test_whatever_stands_for_an_http_answer_ends_its_call_alone(name: str) -> None:
    async def on_call(asked: Asked, line: Line) -> None:
        if asked.message["params"]["name"] == "evil":
            # The connection of a complete answer is reused by the next call unless the answer says that it closes.
            await line.raw(ANSWERS[name].replace(b"Content-Length:", b"Connection: close\r\nContent-Length:", 1))
            raise ConnectionError("the script hangs up")
        await line.result(asked, {"content": []})

    async with scripted_http(legacy(on_call)) as peer, connected(http(peer.url)) as made:
        async with asyncio.timeout(30):
            with pytest.raises(McpError):
                await made.client.call_tool("evil", {})
        assert (await made.client.call_tool("good", {})).content == []
        assert made.client.in_flight == 0
        assert [asked.message["params"]["name"] for asked in peer.asked if asked.method == "tools/call"].count(
            "evil"
        ) == 1, "the call was sent again"


def _mutated(source: random.Random, data: bytes) -> bytes:
    for _ in range(source.randint(1, 6)):
        at = source.randint(0, len(data))
        junk = source.choice([b"", b"\0", b"\r", b"\n", b"\r\n", b":", b" ", b"\xff", b"9" * 20, b";", b"-", b"data: "])
        data = data[:at] + junk + data[at + source.choice([0, 0, 1, 2, 30]) :]
    return data


async def test_a_thousand_mutilated_answers_raise_nothing_but_our_errors() -> None:
    source = random.Random(20261121)
    answers = [*ANSWERS.values(), JSON + b"Content-Length: %d\r\n\r\n" % len(GOOD) + GOOD]

    async def on_call(asked: Asked, line: Line) -> None:
        await line.raw(_mutated(source, source.choice(answers)))
        raise ConnectionError("the script hangs up")

    async with scripted_http(legacy(on_call)) as peer, connected(http(peer.url)) as made:
        ended = 0
        for _ in range(1_000):
            try:
                await made.client.call_tool("evil", {}, timeout=20)
            except McpError:
                ended += 1
        assert ended > 900
        assert made.client.in_flight == 0
        assert made.client.state == "ready"


async def test_mutilated_streams_of_http_sse_end_in_our_errors_before_anyone_waits() -> None:
    source = random.Random(20261122)
    whole = STREAM + b"\r\nevent: endpoint\ndata: /post\n\n: ping\n\ndata: " + GOOD + b"\nid: 7\nretry: 10\n\n"

    async def script(asked: Asked, line: Line) -> None:
        if asked.verb == "POST":
            await line.reply(202, kind="")
            return
        await line.raw(_mutated(source, whole))
        raise ConnectionError("the script hangs up")

    async with scripted_http(script) as peer, asyncio.timeout(60):
        for _ in range(200):
            client = unconnected(http(peer.url, kind="http_sse"))
            with pytest.raises(McpError):
                await client.connect()
            assert client.closed.done()


async def test_a_reply_that_breaks_off_again_and_again_ends_by_its_deadline_and_is_not_asked_for_without_pause() -> (
    None
):
    """Each part has a new event id and asks the client to resume at once."""

    async def on_call(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event(id=f"e{len(peer.asked)}", retry=0)
        await line.end()

    async def on_get(asked: Asked, line: Line) -> None:
        await (on_call(asked, line) if "last-event-id" in asked.headers else line.reply(405, kind=""))

    async with scripted_http(legacy(on_call, on_get=on_get)) as peer, connected(http(peer.url)) as made:
        with pytest.raises(McpError) as caught:
            await made.client.call_tool("evil", {}, timeout=0.6)
        assert caught.value.fault is Fault.TIMEOUT
        assert 1 <= peer.count("GET") <= 8
        assert peer.count("tools/call") == 1


#: frames that answer a call
FRAMES = {
    "reserved opcode 3": frames.frame(0x3, b"{}"),
    "reserved opcode 11": frames.frame(0xB, b""),
    "reserved bits": b"\xf1\x02{}",
    "a masked frame": b"\x81\x82\0\0\0\0{}",
    "continuation of nothing": frames.frame(frames.CONTINUATION, b"{}"),
    "text within a text": frames.frame(frames.TEXT, b"{", final=False) + frames.frame(frames.TEXT, b"}"),
    "a ping in pieces": frames.frame(frames.PING, b"x", final=False),
    "a ping of 126 bytes": frames.frame(frames.PING, b"x" * 126),
    "text that is not UTF-8": frames.frame(frames.TEXT, b"\xff"),
    "text cut in a character": frames.frame(frames.TEXT, b"\xe2", final=False) + frames.frame(0, b"\xff"),
    "a length with its sign": b"\x81\x7f" + b"\xff" * 8,
    "close": frames.frame(frames.CLOSE, b""),
    "close with one byte": frames.frame(frames.CLOSE, b"\x03"),
    "close with a code of nobody": frames.frame(frames.CLOSE, b"\xff\xff"),
    "close with a reason that is not UTF-8": frames.frame(frames.CLOSE, b"\x03\xe8\xff"),
    "close with 1012": frames.frame(frames.CLOSE, b"\x03\xf4again"),
    "compressed though not agreed": frames.frame(frames.TEXT, b"\xaa\x56\x02\0", compressed=True),
    "binary": frames.frame(frames.BINARY, GOOD),
    "HTTP": b"HTTP/1.1 200 OK\r\n\r\n" * 10,
}


@asynccontextmanager
async def scripted_socket(answer: bytes) -> AsyncIterator[str]:
    """A correct legacy server over WebSocket until a tool is called."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line.split(": ")[1] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key"))
        writer.write(
            b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: mcp\r\n"
            + f"Sec-WebSocket-Accept: {frames.accept(key)}\r\n\r\n".encode()
        )
        hostile = Hostile("none")
        try:
            async for text in frames.messages(reader):
                message = json.loads(text)
                if hostile.evil(message):
                    writer.write(answer)
                for said in () if hostile.evil(message) else hostile.answers(message):
                    assert isinstance(said, bytes)
                    writer.write(frames.frame(frames.TEXT, said))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client disconnected
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize("name", FRAMES)
async def test_whatever_stands_for_a_frame_ends_the_connection_with_our_error(name: str) -> None:
    async with scripted_socket(FRAMES[name]) as url, connected(WebSocketSpec(url, policy=LOCAL)) as made:
        async with asyncio.timeout(30):
            with pytest.raises(McpError) as caught:
                await made.client.call_tool("evil", {})
        assert caught.value.fault in (Fault.INVALID_MESSAGE, Fault.CONNECTION_LOST, Fault.MESSAGE_LIMIT)
        assert caught.value.may_have_run
        assert made.client.in_flight == 0
        assert made.client.closed.done()
