"""The smallest HTTP server for MCP: hand-written HTTP/1.1 with keep-alive, so that the benchmark measures the client.

python echo_http.py [--era legacy|modern] [--reply json|sse] [--listen]

/mcp is Streamable HTTP, /sse the older HTTP+SSE. With `--listen`, GET on /mcp opens a stream that stays silent, as many
legacy servers do; otherwise it is refused. Prints its base URL on stderr when ready. Standard library only.
"""

import argparse
import asyncio
import re
import resource
import sys
from collections.abc import Callable
from itertools import count

from echo import answer

_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength:\s*(\d+)")
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n%b"
_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_EMPTY = b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n"
_SESSIONS = count(1)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Echo(asyncio.Protocol):
    #: the reply streams of the older transport, by their number
    streams: dict[bytes, "Echo"] = {}

    def __init__(self, options: argparse.Namespace) -> None:
        self._era: str = options.era
        self._sse = options.reply == "sse"
        self._listen: bool = options.listen
        self._data = b""
        self._stream = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.streams.pop(self._stream, None)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._data, 0, end + 2)
            after = end + 4 + (int(length[1]) if length else 0)
            if len(self._data) < after:
                return
            head, body, self._data = self._data[:end], self._data[end + 4 : after], self._data[after:]
            self._transport.write(self._reply(head, body))

    def _reply(self, head: bytes, body: bytes) -> bytes:
        verb, path, _ = head.split(b" ", 2)
        if verb == b"POST":
            return self._posted(body) if path == b"/mcp" else self._posted_beside(path, body)
        if verb == b"DELETE":
            return _EMPTY % b"204 No Content"
        if path == b"/sse":
            return self._opened()
        return _STREAM if self._listen else _EMPTY % b"405 Method Not Allowed"

    def _posted(self, body: bytes) -> bytes:
        reply = self._answer(body)
        if not reply:
            return _EMPTY % b"202 Accepted"
        session = b"Mcp-Session-Id: %d\r\n" % next(_SESSIONS) if b'"initialize"' in body else b""
        if self._sse:
            event = b"event: message\ndata: " + reply + b"\n\n"
            return _STREAM[:-2] + session + b"\r\n" + _chunk(event) + b"0\r\n\r\n"
        return _OK % (b"application/json", session, len(reply), reply)

    def _answer(self, body: bytes) -> bytes:
        return answer(body, self._era)

    def _opened(self) -> bytes:
        self._stream = b"/messages/%d" % next(_SESSIONS)
        self.streams[self._stream] = self
        return _STREAM + _chunk(b"event: endpoint\ndata: " + self._stream + b"\n\n")

    def _posted_beside(self, path: bytes, body: bytes) -> bytes:
        stream = self.streams.get(path)
        if stream is None:
            return _EMPTY % b"404 Not Found"
        if reply := answer(body, self._era):
            stream._transport.write(_chunk(b"event: message\ndata: " + reply + b"\n\n"))
        return _EMPTY % b"202 Accepted"


async def serve(
    protocol: type[Echo] = Echo, beside: Callable[[asyncio.AbstractEventLoop], None] = lambda loop: None
) -> None:
    """`beside`: what else the loop does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--era", choices=["legacy", "modern"], default="legacy")
    parser.add_argument("--reply", choices=["json", "sse"], default="json")
    parser.add_argument("--listen", action="store_true")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop = asyncio.get_running_loop()
    beside(loop)
    server = await loop.create_server(lambda: protocol(options), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        sys.exit(0)
