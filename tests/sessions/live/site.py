"""A real site for the tests of the live socket: Valkey, Daphne and a backstage process, with a separate data
directory."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import websockets
from websockets.asyncio.client import ClientConnection

from tests.tools import valkey
from tests.tools.prepared import DATABASE, copy_database, one_at_a_time
from tests.tools.shared_tls import SHARED_TLS

ROOT = Path(__file__).resolve().parents[3]
CSRF = "a" * 32
ANSWER_SECONDS = 10.0


class Site:
    #: the module that the backstage process runs
    BACKSTAGE = "tests.sessions.live.backstage"
    #: what Daphne serves
    APPLICATION = "mcpadmin.asgi:application"

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.valkey_socket = directory / "v.sock"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MCPADMIN_", "DJANGO_"))}
        self.env = kept | {
            "MCPADMIN_DATA_DIR": str(directory),
            "MCPADMIN_VALKEY_SOCKET": str(self.valkey_socket),
            "MCPADMIN_LOG_LEVEL": "WARNING",
            "DJANGO_SETTINGS_MODULE": "mcpadmin.settings",
            "PYTHONUNBUFFERED": "1",
            **settings,
        }
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        self.valkey = valkey.start(self.valkey_socket)
        if "DATABASE_URL" not in settings:
            copy_database(directory / DATABASE)
        self.backstage = self._process("-m", self.BACKSTAGE, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if "DATABASE_URL" in settings:
            self.do("migrate")
        self.web = self._start_web()

    def _process(self, *words: str, **options: Any) -> "subprocess.Popen[str]":
        with (self.directory / "output.log").open("a") as log:
            return subprocess.Popen([sys.executable, *words], cwd=ROOT, env=self.env, text=True, stderr=log, **options)

    def _start_web(self) -> "subprocess.Popen[str]":
        with one_at_a_time("start"):
            return self._started_web()

    def _started_web(self) -> "subprocess.Popen[str]":
        fd = self.listener.fileno()
        words = ("-m", "mcpadmin.web.daphne", "--fd", str(fd), "-v", "0", self.APPLICATION)
        process = self._process(*words, pass_fds=[fd], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.origin}/healthz", timeout=2, verify=SHARED_TLS).status_code == 200:
                    return process
            assert process.poll() is None, self.log()
            time.sleep(0.1)  # Daphne sends no signal when it is ready, so poll
        raise AssertionError(f"Daphne does not answer:\n{self.log()}")

    def do(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Run a function of backstage.py in the backstage process and return its result."""
        assert self.backstage.stdin is not None
        assert self.backstage.stdout is not None
        self.backstage.stdin.write(json.dumps({"do": verb, "args": args, "kwargs": kwargs}) + "\n")
        self.backstage.stdin.flush()
        answer = json.loads(self.backstage.stdout.readline() or '{"problem": "it died"}')
        assert "ok" in answer, f"{verb}: {answer['problem']}\n{self.log()}"
        return answer["ok"]

    def log(self) -> str:
        return (self.directory / "output.log").read_text()[-6_000:]

    def restart_valkey(self) -> None:
        """Stop Valkey, which loses all its data, and start an empty one."""
        valkey.stop(self.valkey)
        self.valkey = valkey.start(self.valkey_socket)

    def restart_web(self) -> None:
        self.web.terminate()
        self.web.wait(15)
        self.web = self._start_web()

    def stop(self) -> None:
        assert self.backstage.stdin is not None
        self.backstage.stdin.close()
        for process in (self.web, self.backstage):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
        valkey.stop(self.valkey)
        self.listener.close()

    # --- browsers ------------------------------------------------------------------------------------------------
    def browser(self, name: str) -> "Browser":
        return Browser(self, self.do("sign_in", name))


class Browser:
    """A signed-in browser: it has cookies, gets tickets, and opens sockets."""

    def __init__(self, site: Site, session_key: str) -> None:
        self.site, self.session_key = site, session_key
        self.cookie = f"mcpadmin_session={session_key}; mcpadmin_csrf={CSRF}"

    async def post(self, path: str, data: dict[str, str] | None = None) -> httpx.Response:
        headers = {"Cookie": self.cookie, "X-CSRFToken": CSRF, "Origin": self.site.origin}
        async with httpx.AsyncClient(timeout=20, verify=SHARED_TLS) as client:
            return await client.post(f"{self.site.origin}{path}", headers=headers, data=data or {})

    async def get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(timeout=20, verify=SHARED_TLS) as client:
            return await client.get(f"{self.site.origin}{path}", headers={"Cookie": self.cookie})

    async def ticket(self) -> str:
        response = await self.post("/live/ticket/")
        assert response.status_code == 200, response.text[:500]
        return str(response.json()["ticket"])

    def dial(self, origin: str | None = "", **options: Any) -> Any:
        """Open a socket without a hello. `origin` None sends no Origin header, "" the site's own."""
        headers = {"Cookie": self.cookie}
        if origin is not None:
            headers["Origin"] = origin or self.site.origin
        uri = f"ws://127.0.0.1:{self.site.port}/ws/"
        return websockets.connect(uri, additional_headers=headers, max_size=None, proxy=None, **options)

    @contextlib.asynccontextmanager
    async def tab(self) -> AsyncIterator["Tab"]:
        ticket = await self.ticket()
        async with self.dial() as connection:
            tab = Tab(connection)
            await tab.say(op="hello", ticket=ticket, v=1)
            tab.welcome = await tab.hear(lambda message: message.get("op") == "welcome")
            yield tab


class Tab:
    """One open socket. `heard` keeps every message in order of arrival."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.heard: list[dict[str, Any]] = []
        self.welcome: dict[str, Any] = {}
        self._ref = 0
        self._at = 0

    async def say(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def sub(self, topic: str, since: int | None = None) -> None:
        """Subscribe and wait for synced or denied."""
        await self.say(op="sub", topics={topic: since})
        await self.hear(lambda message: message.get("op") in ("synced", "denied") and message["t"] == topic)

    async def ask(self, **message: Any) -> dict[str, Any]:
        self._ref += 1
        ref = self._ref
        await self.say(**message, ref=ref)
        return await self.hear(lambda answer: answer.get("ref") == ref)

    async def hear(self, wanted: Callable[[dict[str, Any]], bool], seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """The next message not yet looked at for which `wanted` is true."""
        async with asyncio.timeout(seconds):
            while True:
                while self._at < len(self.heard):
                    self._at += 1
                    if wanted(self.heard[self._at - 1]):
                        return self.heard[self._at - 1]
                self.heard.append(json.loads(await self.connection.recv()))

    async def listen(self, seconds: float) -> None:
        """Collect messages for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    self.heard.append(json.loads(await self.connection.recv()))

    async def closed(self, seconds: float = ANSWER_SECONDS) -> int | None:
        """Wait for the close and return its code."""
        async with asyncio.timeout(seconds):
            with contextlib.suppress(websockets.ConnectionClosed):
                while True:
                    self.heard.append(json.loads(await self.connection.recv()))
        return self.connection.close_code

    def seqs(self, topic: str) -> list[int]:
        """The numbers of all rows of a feed, in order of arrival."""
        return [row["seq"] for message in self.heard if message.get("t") == topic for row in message.get("rows", [])]

    def frames(self, topic: str, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.heard if message.get("t") == topic and message.get("kind") == kind]
