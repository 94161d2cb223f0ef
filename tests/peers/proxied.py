"""A fault proxy in a separate process, controlled through a small HTTP port.

    with proxied("127.0.0.1", 8080) as proxy: proxy.url; proxy.black_hole(); proxy.clear()
    python -m tests.peers.proxied HOST PORT     prints the proxy's URL and the control port's on stderr

GET /, POST /toxics, DELETE /toxics[/<name>], POST /cut, POST /close, POST /open; toxics are JSON as Toxiproxy's.
"""

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.peers.faultproxy import FaultProxy
from tests.peers.toxics import Stream, Toxic
from tests.tools.stack import ROOT


async def control(proxy: FaultProxy) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, ValueError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            verb, path, _ = head.split(" ", 2)
            lengths = [line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length:")]
            body = await reader.readexactly(int(lengths[0]) if lengths else 0)
            status, told = await _obey(proxy, verb, path, body)
            text = json.dumps(told).encode()
            writer.write(
                b"HTTP/1.1 %d -\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(text), text)
            )
            await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def _obey(proxy: FaultProxy, verb: str, path: str, body: bytes) -> tuple[int, Any]:
    try:
        if (verb, path) == ("POST", "/toxics"):
            proxy.put(Toxic.read(json.loads(body)))
        elif verb == "DELETE" and path.startswith("/toxics"):
            name = path.removeprefix("/toxics").lstrip("/")
            proxy.remove(name) if name else proxy.clear()
        elif (verb, path) == ("POST", "/cut"):
            proxy.cut()
        elif (verb, path) in (("POST", "/close"), ("POST", "/open")):
            await (proxy.close() if path == "/close" else proxy.open())
        elif (verb, path) != ("GET", "/"):
            return 404, {"problem": "no such order"}
    except (ValueError, TypeError, AttributeError) as problem:
        return 400, {"problem": str(problem)}
    toxics = [one.wire() for one in proxy.toxics.values()]
    return 200, {"port": proxy.port, "accepted": proxy.accepted, "open": len(proxy.links), "toxics": toxics}


class Remote:
    """Controls a proxy in another process through its control port."""

    def __init__(self, address: str, control_url: str) -> None:
        self.url, self._control = address, control_url

    def add(self, kind: str, stream: Stream = "downstream", **attributes: float) -> None:
        self._ask("POST", "/toxics", {"type": kind, "stream": stream, "attributes": attributes})

    def black_hole(self) -> None:
        """Let nothing pass in either direction, without closing anything."""
        self.add("timeout", "upstream")
        self.add("timeout", "downstream")

    def clear(self) -> None:
        self._ask("DELETE", "/toxics")

    def cut(self) -> None:
        self._ask("POST", "/cut")

    def close(self) -> None:
        self._ask("POST", "/close")

    def open(self) -> None:
        self._ask("POST", "/open")

    def state(self) -> dict[str, Any]:
        return self._ask("GET", "/")

    def _ask(self, verb: str, path: str, body: Any = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._control + path, data=data, method=verb)
        with urllib.request.urlopen(request, timeout=10) as answer:
            told: dict[str, Any] = json.load(answer)
        return told


@contextmanager
def proxied(host: str, port: int) -> Iterator[Remote]:
    command = [sys.executable, "-m", "tests.peers.proxied", host, str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        address, _, told = process.stderr.readline().strip().partition(" ")
        assert told, "the proxy did not start"
        yield Remote(address, told)
    finally:
        process.terminate()
        process.wait(10)
        process.stderr.close()


async def main(host: str, port: str) -> None:
    async with FaultProxy(host, int(port)) as proxy:
        server = await control(proxy)
        told = server.sockets[0].getsockname()[1]
        print(f"http://127.0.0.1:{proxy.port} http://127.0.0.1:{told}", file=sys.stderr, flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
