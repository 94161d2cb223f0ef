"""The places where no secret may appear, and how to read each."""

import asyncio
import json
import re
import socket
import threading
import zlib
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.e2e.sockets import Visitor, greeted
from tests.tools import postgres
from tests.tools.stack import Stack

LINKS = re.compile(r'href="(/[^"#]*)"')
MOST_PAGES = 1_600
#: too many requests; a failure of the web process
NO_PAGE = frozenset({429, *range(500, 600)})
LEAST_SHOWN = 0.9
#: each recorded message has a page; the database is searched for all of them
MESSAGE, MOST_MESSAGES = re.compile(r"/protocol/\d+/$"), 60
#: what differs between two addresses of one page: the server, the row, and the values of the query
SERVER_OR_ROW, VALUE = re.compile(r"(?<=^/servers/)[^/?]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+"), re.compile(r"=[^&]*")


# --- pages and downloads ---------------------------------------------------------------------------------------------
def whole(answer: Any) -> bytes:
    """The body with its headers."""
    return bytes(answer.content) + repr(answer.headers).encode()


def every_page(visitor: Visitor, more: Collection[str], most_alike: int) -> dict[str, bytes]:
    """The pages `more` and every page reachable by links, by URL. Of the links that differ only in their server, row or
    values of the query, `most_alike`. An error that is shown instead of a page hides what the page shows."""
    found: dict[str, bytes] = {}
    answered: Counter[int] = Counter()
    alike: Counter[str] = Counter()
    waiting = ["/", "/palette/?q=e", "/accounts/login/", *more]
    while waiting:
        path = waiting.pop().replace("&amp;", "&")
        if path in found or path.startswith(("/static/", "/accounts/logout")):
            continue
        if MESSAGE.search(path) and sum(map(bool, map(MESSAGE.search, found))) >= MOST_MESSAGES:
            continue
        shape = VALUE.sub("", SERVER_OR_ROW.sub("*", path))
        if path not in more and alike[shape] >= most_alike:
            continue
        alike[shape] += 1
        page = visitor.get(path)
        assert page.status_code not in NO_PAGE, (path, page.text[:2_000])
        answered[page.status_code] += 1
        found[path] = whole(page)
        waiting += LINKS.findall(page.text)
        assert len(found) < MOST_PAGES
    assert answered[200] >= LEAST_SHOWN * len(found), answered
    return found


def exports(stack: Stack, visitor: Visitor) -> bytes:
    """Both export formats, including our own fields."""
    slugs = [row["slug"] for row in stack.rows("SELECT slug FROM servers_server")]
    forms = ("mcpServers", "vscode")
    orders = [{"form": form, "own": "on", "servers": slugs} for form in forms]
    token = {"X-CSRFToken": visitor.csrf_token}
    answers = [visitor.request("POST", "/servers/export/", data=order, headers=token) for order in orders]
    assert [answer.headers["content-type"] for answer in answers] == ["application/json"] * len(forms)
    return b"".join(whole(answer) for answer in answers)


# --- sockets ---------------------------------------------------------------------------------------------------------
class Listener:
    """A browser's socket that receives all topics while the block runs. `frames` is what it received."""

    def __init__(self, stack: Stack, visitor: Visitor) -> None:
        self.frames: list[str] = []
        self._stack, self._visitor = stack, visitor
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._listen(),), daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> "Listener":
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *args: object) -> None:
        asyncio.run_coroutine_threadsafe(self._socket.close(), self._loop)
        self._thread.join(20)

    def say(self, **order: Any) -> None:
        asyncio.run_coroutine_threadsafe(self._socket.send(json.dumps(order)), self._loop).result(10)

    def follow(self, *topics: str) -> None:
        for topic in topics:
            self.say(op="sub", topics={topic: 0 if topic.partition(".")[0] in ("audit", "log") else None})

    @property
    def heard(self) -> bytes:
        """The frames as received, and with their escapes decoded."""
        return "\n".join([*self.frames, *(str(json.loads(frame)) for frame in self.frames)]).encode()

    async def _listen(self) -> None:
        async with greeted(self._stack, self._visitor) as self._socket:
            self._ready.set()
            async for text in self._socket:
                self.frames.append(text)


# --- Redis -----------------------------------------------------------------------------------------------------------
def redis_directory(stack: Stack) -> Path:
    """Of the stack's own Redis: the embedded Valkey permits no user to MONITOR commands."""
    return Path(urlsplit(stack.environment["REDIS_URL"]).path).parent


def _valkey(stack: Stack) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    connection.connect(str(redis_directory(stack) / "v.sock"))
    return connection


class Monitor:
    """Every command that Redis received while the block ran."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._seen = stack, bytearray()

    def __enter__(self) -> "Monitor":
        self._connection = _valkey(self._stack)
        self._connection.sendall(b"MONITOR\r\n")
        assert self._connection.recv(5) == b"+OK\r\n"
        self._connection.settimeout(None)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._connection.close()

    @property
    def seen(self) -> bytes:
        """The output as printed, and with its quotes unescaped."""
        return bytes(self._seen) + self._seen.replace(b'\\"', b'"').replace(b"\\\\", b"\\")

    def _read(self) -> None:
        with suppress(OSError):
            while data := self._connection.recv(1 << 16):
                self._seen += data


def redis_do(stack: Stack, *words: bytes) -> None:
    with _valkey(stack) as connection:
        parts = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        connection.sendall(b"*%d\r\n%s" % (len(words), parts))
        assert connection.recv(100)[:1] in b"+:$"


def redis_files(stack: Stack) -> bytes:
    """The append-only file: everything ever written, including what was deleted since."""
    files = [file.read_bytes() for file in redis_directory(stack).rglob("*") if file.is_file()]
    assert any(files)
    return b"".join(files)


# --- the database ----------------------------------------------------------------------------------------------------
def _is_audit(table: str) -> bool:
    return table.startswith("servers_audit")


def rows_of(stack: Stack, *, audit: bool) -> bytes:
    """Every column of every table of that kind as text, decompressed where compressed."""
    listing = "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'"
    if not stack.database_url:
        listing = "SELECT name FROM sqlite_master WHERE type = 'table'"
    tables = [row["name"] for row in stack.rows(listing)]
    wanted = [table for table in tables if _is_audit(table) == audit]
    assert wanted
    orders = [f'SELECT * FROM "{table}"' for table in wanted]  # noqa: S608  names from the schema
    return b"\n".join(_plain(value) for order in orders for row in stack.rows(order) for value in dict(row).values())


def _plain(value: object) -> bytes:
    if not isinstance(value, bytes):
        text = str(value)
        with suppress(ValueError):
            text += str(json.loads(text))
        return text.encode("utf-8", "surrogatepass")
    with suppress(zlib.error):
        return zlib.decompress(value)
    return value


def database_files(stack: Stack) -> bytes:
    """Includes the journal and free pages."""
    if stack.database_url:
        return postgres.files(stack.database_url)
    return b"".join(file.read_bytes() for file in stack.data_dir.glob("mcpadmin.sqlite3*"))


# --- processes -------------------------------------------------------------------------------------------------------
def _of_process(process: psutil.Process, what: str) -> bytes:
    with suppress(OSError):  # the process may have ended
        return Path(f"/proc/{process.pid}/{what}").read_bytes()
    return b""


def command_lines(processes: Iterable[psutil.Process]) -> bytes:
    return b"\n".join(_of_process(process, "cmdline") for process in processes)


def environments(processes: Iterable[psutil.Process]) -> bytes:
    return b"\n".join(_of_process(process, "environ") for process in processes)
