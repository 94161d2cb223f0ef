"""Name lookups of confined servers: DNS over TCP on loopback, forwarded to the machine's name servers.

Confined servers have no UDP (see runner.filter_code), and name servers of many networks answer only UDP. The forwarder
knows each server by its connection, refuses names that the server may not ask for, and learns the answers. Sources: RFC
1035 section 4, RFC 7766 section 8.
"""

import asyncio
import re
import socket
import struct
from collections import Counter
from typing import Final, Protocol

_NAME: Final = re.compile(
    r"(?:\*\.)?(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*"
)
_A, _AAAA = 1, 28
_REFUSED, _FAILED = 5, 2
#: seconds to wait for one name server, and for the next question
_PATIENCE, _IDLE = 5.0, 30.0
#: lookups of one server at the same time
_MOST_CONNECTIONS: Final = 64


class LookupRules(Protocol):
    def may_ask_for(self, name: str) -> bool: ...

    def learn(self, name: str, addresses: list[str]) -> None: ...


def check(name: str) -> None:
    """ValueError unless it is a host name, or `*.` and one."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a host name.")


def servers() -> tuple[str, ...]:
    """The machine's name servers."""
    found = []
    try:
        with open("/etc/resolv.conf", encoding="ascii", errors="replace") as lines:
            for line in lines:
                words = line.split()
                if len(words) > 1 and words[0] == "nameserver":
                    found.append(words[1])
    except OSError:
        pass  # no file: the resolver's default
    return tuple(found) or ("127.0.0.1",)


def fixed() -> list[tuple[str, list[str]]]:
    """Addresses with their names from /etc/hosts, which need no name server."""
    found = [("127.0.0.1", ["localhost"]), ("::1", ["localhost"])]
    try:
        with open("/etc/hosts", encoding="ascii", errors="replace") as lines:
            for line in lines:
                address, *known = line.partition("#")[0].lower().split() or [""]
                found.append((address, known))
    except OSError:
        pass  # no file, no names
    return found


class Forwarder:
    """One per event loop."""

    def __init__(self) -> None:
        self._starting: asyncio.Future[asyncio.Server] | None = None
        self._askers: dict[int, LookupRules] = {}
        self._connections: Counter[int] = Counter()

    async def address(self, client: socket.socket, asker: LookupRules) -> tuple[str, int] | tuple[str, int, int, int]:
        """The address to connect this socket to; it is remembered as the server's socket. OSError."""
        if self._starting is None or _failed(self._starting):  # without a free descriptor, for example
            self._starting = asyncio.ensure_future(self._start())
        server = await asyncio.shield(self._starting)
        port = int(server.sockets[0].getsockname()[1])
        if client.family == socket.AF_INET6:
            client.bind(("::ffff:127.0.0.1", 0, 0, 0))
            self._askers[client.getsockname()[1]] = asker
            return "::ffff:127.0.0.1", port, 0, 0
        client.bind(("127.0.0.1", 0))
        self._askers[client.getsockname()[1]] = asker
        return "127.0.0.1", port

    async def _start(self) -> asyncio.Server:
        # Created here, because asyncio would take any error for an address family that the machine lacks.
        listening = socket.create_server(("127.0.0.1", 0))
        try:
            return await asyncio.start_server(self._serve, sock=listening)
        except BaseException:  # also when cancelled
            listening.close()
            raise

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        asker = self._askers.pop(peer[1], None) if peer else None
        self._connections[id(asker)] += 1
        try:
            while asker is not None and self._connections[id(asker)] <= _MOST_CONNECTIONS:
                async with asyncio.timeout(_IDLE):
                    size = int.from_bytes(await reader.readexactly(2), "big")
                    question = await reader.readexactly(size)
                answer = await _answer(question, asker)
                writer.write(len(answer).to_bytes(2, "big") + answer)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client is done
        finally:
            self._connections[id(asker)] -= 1
            if not self._connections[id(asker)]:
                del self._connections[id(asker)]
            writer.close()


def _failed(starting: "asyncio.Future[asyncio.Server]") -> bool:
    return starting.done() and (starting.cancelled() or starting.exception() is not None)


_forwarders: dict[asyncio.AbstractEventLoop, Forwarder] = {}


def forwarder() -> Forwarder:
    loop = asyncio.get_running_loop()
    for other in [loop_ for loop_ in _forwarders if loop_.is_closed()]:
        del _forwarders[other]
    return _forwarders.setdefault(loop, Forwarder())


async def _answer(question: bytes, asker: LookupRules) -> bytes:
    try:
        name = _question_name(question)
        check(name)
    except (IndexError, struct.error, ValueError):
        return _without_answer(question, _REFUSED)
    if not asker.may_ask_for(name):
        return _without_answer(question, _REFUSED)
    for server in servers():
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await _asked(server, question)
        except (OSError, TimeoutError):
            continue
        try:
            asker.learn(name, _addresses(answer))
        except (IndexError, struct.error, ValueError):
            return _without_answer(question, _FAILED)
        return answer
    return _without_answer(question, _FAILED)


async def _asked(server: str, question: bytes) -> bytes:
    answer = await _by_datagram(server, question)
    return await _by_stream(server, question) if answer[2] & 0x02 else answer  # truncated


async def _by_datagram(server: str, question: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as opened:
        await loop.sock_connect(opened, (server, 53))
        await loop.sock_sendall(opened, question)
        while True:
            answer = await loop.sock_recv(opened, 65_535)
            if len(answer) >= 12 and answer[:2] == question[:2] and answer[2] & 0x80:
                return answer


async def _by_stream(server: str, question: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(server, 53)
    try:
        writer.write(len(question).to_bytes(2, "big") + question)
        size = int.from_bytes(await reader.readexactly(2), "big")
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as exc:
        raise ConnectionResetError("The name server closed the connection.") from exc
    finally:
        writer.close()


def _without_answer(question: bytes, code: int) -> bytes:
    if len(question) < 12:
        return b""
    flags = 0x8080 | (int.from_bytes(question[2:4], "big") & 0x7900) | code
    try:
        end = _after_name(question, 12) + 4
    except IndexError:
        return b""
    return question[:2] + struct.pack("!HHHHH", flags, 1, 0, 0, 0) + question[12:end]


def _question_name(message: bytes) -> str:
    """The name in a message with one question."""
    if len(message) < 12 or message[4:6] != b"\0\1":
        raise IndexError("No single question.")
    labels, at = [], 12
    while size := message[at]:
        if size > 63:
            raise IndexError("No plain name.")
        labels.append(message[at + 1 : at + 1 + size].decode("ascii", "replace"))
        at += size + 1
    return ".".join(labels).lower()


def _after_name(message: bytes, at: int) -> int:
    while size := message[at]:
        if size >= 0xC0:
            return at + 2
        at += size + 1
    return at + 1


def _addresses(message: bytes) -> list[str]:
    """The addresses in all A and AAAA records of the answer, whatever name they belong to: an alias leads to other
    names."""
    questions, answers = struct.unpack_from("!HH", message, 4)
    at, found = 12, []
    for _ in range(questions):
        at = _after_name(message, at) + 4
    for _ in range(answers):
        at = _after_name(message, at)
        kind, _, _, size = struct.unpack_from("!HHIH", message, at)
        data = message[at + 10 : at + 10 + size]
        at += 10 + size
        if (kind, size) in ((_A, 4), (_AAAA, 16)):
            found.append(socket.inet_ntop(socket.AF_INET if kind == _A else socket.AF_INET6, data))
    return found
