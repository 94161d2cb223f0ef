"""The product in parts that a fault run kills and restarts individually: Valkey, web, any number of workers.

`up` would back off from restarting a part that keeps dying. Here each part restarts when the run decides.
"""

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.faults.databases import Busy, Database, database
from tests.sessions.live.site import ROOT, Site
from tests.tools import valkey
from tests.tools.processes import is_stopped

T = TypeVar("T")
#: times more than three times shorter than the product's, and connection attempts at most 1.2 s apart
FAST = {
    "MCPADMIN_TIME_SCALE": "0.3",
    "MCPADMIN_DRAIN_SECONDS": "4",
    "MCPADMIN_RECONNECT_CEILING_SECONDS": "4",
}
EFFECT_PEER = ROOT / "tests" / "peers" / "effect_peer.py"
READY_SECONDS = 120.0
_WORKER = "-m celery -q --no-color -A {app} worker --pool threads --without-gossip --without-mingle --without-heartbeat -l WARNING"


class Plant(Site):
    BACKSTAGE = "tests.faults.backstage"

    def __init__(
        self, directory: Path, database: Database, *, times: dict[str, str] | None = None, **settings: str
    ) -> None:
        self.database, kept = database, database.settings
        self._backstage_door = threading.Lock()
        times = FAST if times is None else times
        super().__init__(
            directory,
            **(times | {"MCPADMIN_SOCKETS_PER_USER": "1000", "MCPADMIN_LOG_FORMAT": "json"} | kept | settings),
        )
        self.workers: dict[str, subprocess.Popen[str]] = {}
        # Beside the product's data, which no server may be granted.
        self.effects_file = directory.with_name(f"{directory.name}-recorded") / "effects"
        self.effects_file.parent.mkdir(exist_ok=True)

    def do(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Thread-safe: runs one command after the other."""
        with self._backstage_door:
            return super().do(verb, *args, **kwargs)

    # --- workers -----------------------------------------------------------------------------------------------------
    def start_worker(self, node: str = "w1", *, app: str = "mcpadmin.worker", wait: bool = True) -> int:
        words = (*_WORKER.format(app=app).split(), "-n", f"{node}@plant")
        self.workers[node] = self._process(*words, stdout=subprocess.DEVNULL)
        if wait:
            self.await_worker(node)
        return self.workers[node].pid

    def await_worker(self, node: str) -> None:
        """Wait for its first heartbeat."""
        process = self.workers[node]
        beat = "SELECT 1 FROM mcp_sessions_worker WHERE pid = ?"
        try:
            until(lambda: self.database.rows(beat, process.pid) or process.poll() is not None)
        except AssertionError:
            raise AssertionError(f"worker {node} never had a heartbeat:\n{self.log()}") from None
        assert process.poll() is None, self.log()

    def kill_worker(self, node: str = "w1") -> None:
        process = self.workers.pop(node)
        process.kill()
        process.wait(10)

    def freeze_worker(self, node: str) -> None:
        """Stop a worker with SIGSTOP; its children keep running. Never during a commit: SQLite has a single write lock,
        so a frozen writer would block everything."""
        until(lambda: self._frozen(node), words=f"{node} commits without end")

    def _frozen(self, node: str) -> bool:
        process = self.workers[node]
        process.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(process.pid), words=f"{node} does not stop")
        try:
            with self.database.locked(seconds=2):
                return True
        except Busy:
            self.thaw_worker(node)
            return False

    def thaw_worker(self, node: str) -> None:
        self.workers[node].send_signal(signal.SIGCONT)

    def stop_worker(self, node: str = "w1") -> int:
        process = self.workers.pop(node)
        process.terminate()
        return process.wait(40)

    # --- web and Valkey ----------------------------------------------------------------------------------------------
    def kill_web(self) -> None:
        self.web.kill()
        self.web.wait(10)

    def start_web(self) -> None:
        self.web = self._start_web()

    def kill_valkey(self) -> None:
        self.valkey.kill()
        self.valkey.wait(10)
        self.valkey_socket.unlink(missing_ok=True)

    def start_valkey(self) -> None:
        self.valkey = valkey.start(self.valkey_socket)

    def flush_valkey(self) -> None:
        valkey.flush(self.valkey_socket)

    # --- servers -----------------------------------------------------------------------------------------------------
    def effect_command(self, transport: str, *options: str) -> list[str]:
        return [sys.executable, "-S", "-E", str(EFFECT_PEER), transport, "--effects", str(self.effects_file), *options]

    def register_effects(self, name: str = "effects", *options: str, era: str = "legacy", **fields: Any) -> str:
        """Register a stdio server that records its effects, or with `url` the HTTP server listening there."""
        if "url" not in fields:
            command, *arguments = self.effect_command("stdio", "--era", era, *options)
            fields |= {"command": command, "arguments": arguments}
        return str(self.do("register", name, **fields))

    def await_ready(self, *servers: str, seconds: float = READY_SECONDS) -> None:
        """Wait until the sessions are ready and their tools are known."""
        until(lambda: set(servers) <= self.ready(), seconds, f"never ready: {servers}\n{self.log()}")
        for server in servers:
            until(lambda server=server: self.do("has_tool", server, "effect"), seconds, "its tools were never read")

    def ready(self) -> set[str]:
        return {row["uid"] for row in self.do("sessions") if row["state"] == "ready"}

    # --- its processes -----------------------------------------------------------------------------------------------------
    def processes(self, *words: str) -> list[psutil.Process]:
        """All processes whose command line contains the data directory and all these words, whatever their parent."""
        wanted = (str(self.directory), *words)
        found = psutil.process_iter(["cmdline"])
        return [process for process in found if all(word in " ".join(process.info["cmdline"] or []) for word in wanted)]

    def stdio_servers(self) -> list[psutil.Process]:
        """Excludes setpriv and unshare, whose command lines contain the command that they run."""
        found = self.processes("effect_peer.py", "stdio")
        return [process for process in found if process.name() not in ("setpriv", "unshare")]

    def stop(self) -> None:
        for process in self.workers.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.workers.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
        super().stop()


def until(check: Callable[[], T], seconds: float = READY_SECONDS, words: str = "it never came true") -> T:
    """Poll `check` and return its first true value."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, words
        time.sleep(0.05)  # no event reports rows of another process
    return found


async def auntil(check: Callable[[], T], seconds: float = READY_SECONDS, words: str = "it never came true") -> T:
    """`until` in a thread, so that the sockets stay alive."""
    return await asyncio.to_thread(until, check, seconds, words)


@contextmanager
def plant(**options: Any) -> Iterator[Plant]:
    directory = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        with database(directory) as kept:
            running = Plant(directory, kept, **options)
            try:
                yield running
            finally:
                running.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(directory.with_name(f"{directory.name}-recorded"), ignore_errors=True)


@asynccontextmanager
async def http_effects(running: Plant, era: str = "legacy") -> AsyncIterator[str]:
    """The URL of an HTTP server that records its effects in the plant's file. It outlives workers."""
    command = running.effect_command("http", "--era", era)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        yield (await process.stderr.readline()).decode().strip()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
