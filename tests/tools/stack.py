"""The real product, started as a user starts it: `manage.py up` in a separate process with a private data directory."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.tools import postgres
from tests.tools.prepared import ADMIN, ROOT, clean_environment, one_at_a_time, prepare
from tests.tools.warm import Commands, Done

READY = re.compile(r"mcpadmin is ready after ([\d.]+) s: (http[^\s\"]+)")
SETUP_LINK = re.compile(r"(http://\S+/setup/[^\s\"]+)")
READY_SECONDS = 120.0
STOP_SECONDS = 40.0


def proportional_mib(pid: int) -> float:
    """Memory of a process in MiB. Each shared page counts proportionally (PSS)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has no memory")


class Stack:
    """One running product. `base_url` is set by `start`; `output` is everything it printed."""

    program: tuple[str, ...] = (sys.executable, "manage.py")

    def __init__(
        self, data_dir: Path, *options: str, env: dict[str, str] | None = None, inside: tuple[str, ...] = ()
    ) -> None:
        """`inside`: a program that prepares what the product runs in, and then becomes it."""
        self._inside = inside
        self.data_dir = data_dir
        self.base_url = ""
        self.lines: list[str] = []
        # Root stays root, whether or not another user reaches this checkout; test_up_unprivileged.py tests the rest.
        stays = {"MCPADMIN_USER": "root"} if os.geteuid() == 0 else {}
        self._env = clean_environment(**(stays | (env or {})))
        self._options = options
        self._changed = threading.Condition()
        self._commands = Commands(self.environment)

    def start(self) -> "Stack":
        with one_at_a_time("start"):
            self.launch()
            match = self.wait_for(READY, READY_SECONDS)
        self.base_url = match[2]
        return self

    def launch(self) -> None:
        """Start without waiting until the product is ready."""
        self._commands.close()  # it may know the socket of an earlier start
        options = self._options or ("--port", "0")
        command = [
            *self._inside,
            *self.program,
            "up",
            "--no-browser",
            "--data-dir",
            str(self.data_dir),
            *options,
        ]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        threading.Thread(target=self._drain, args=(self.process,), daemon=True).start()

    def _drain(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def is_running(self) -> bool:
        return hasattr(self, "process") and self.process.poll() is None

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for(self, pattern: re.Pattern[str], seconds: float = 30.0, since: int = 0) -> re.Match[str]:
        """Return the match of the first line from number `since` on. Fails when `up` ends or the time is up."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                for line in self.lines[since:]:
                    if match := pattern.search(line):
                        return match
                left = deadline - time.monotonic()
                if left <= 0 or self.process.poll() is not None:
                    raise AssertionError(f"`up` never printed {pattern.pattern!r}:\n{self.output[-6000:]}")
                self._changed.wait(min(left, 0.5))  # also wakes to notice that the process ended

    @property
    def setup_link(self) -> str:
        return self.wait_for(SETUP_LINK)[1]

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which a management command finds this product."""
        return self._env | {"MCPADMIN_DATA_DIR": str(self.data_dir)}

    def attempt(self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> Done:
        """Run a management command against this product's data and return its status and output."""
        return self._commands.run(*arguments, stdin=stdin, env=env)

    def manage(self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> str:
        """Like `attempt`, but raise when the command fails. Returns its output."""
        done = self.attempt(*arguments, stdin=stdin, env=env)
        if done.status:
            raise AssertionError(f"manage.py {arguments[0]} failed:\n{done.output}{done.errors}")
        return done.output

    def register(self, name: str, command: tuple[str, list[str]], *options: str) -> str:
        """Register a stdio server as the administrator. Returns its slug."""
        program, arguments = command
        said = self.manage("register_server", "--user", ADMIN[0], "--name", name, *options, "--", program, *arguments)
        return said.rsplit("/servers/", 1)[1].split("/", 1)[0]

    def shell(self, code: str) -> str:
        """Run Python with the product's models and return its output."""
        return self.manage("shell", "--no-imports", "-c", code)

    def create_admin(self, username: str = ADMIN[0], password: str = ADMIN[1]) -> tuple[str, str]:
        self.manage(
            "createsuperuser", "--noinput", "--username", username, "--email", "",
            env={"DJANGO_SUPERUSER_PASSWORD": password},
        )  # fmt: skip
        return username, password

    @property
    def database_url(self) -> str:
        """Empty when the product uses its SQLite file."""
        return self._env.get("DATABASE_URL", "")

    def rows(self, sql: str, *parameters: object) -> list[Any]:
        """Read the product's database directly."""
        if self.database_url:
            return postgres.rows(self.database_url, sql, parameters)
        with sqlite3.connect(f"file:{self.data_dir / 'mcpadmin.sqlite3'}?mode=ro", uri=True, timeout=10) as database:
            database.row_factory = sqlite3.Row
            return database.execute(sql, parameters).fetchall()

    def write(self, sql: str, *parameters: object) -> None:
        """Change the product's database directly, without the product noticing."""
        if self.database_url:
            postgres.write(self.database_url, sql, parameters)
            return
        with sqlite3.connect(self.data_dir / "mcpadmin.sqlite3", timeout=30) as database:
            database.execute("PRAGMA legacy_alter_table = ON")  # otherwise a rename rewrites every reference
            database.execute(sql, parameters)

    def family(self) -> list[psutil.Process]:
        """`up` and all its descendants."""
        try:
            supervisor = psutil.Process(self.process.pid)
            return [supervisor, *supervisor.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def part(self, *words: str) -> list[psutil.Process]:
        """The processes whose command line contains all these words, e.g. part("mcpadmin.worker")."""
        found = []
        for process in self.family():
            try:
                line = " ".join(process.cmdline())
            except psutil.Error:
                continue  # it ended between the listing and this check
            if all(word in line for word in words):
                found.append(process)
        return found

    def worker_pids(self) -> list[int]:
        return [process.pid for process in self.part("mcpadmin.worker")]

    def kill_worker(self) -> int:
        """Send SIGKILL to the (first) worker and return its old pid."""
        pid = self.worker_pids()[0]
        os.kill(pid, signal.SIGKILL)
        return pid

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop in order and return the exit status. Raises TimeoutExpired after STOP_SECONDS. Kills whatever is still alive."""
        self._commands.close()
        family = self.family()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            for process in still_alive(family):
                with suppress(psutil.NoSuchProcess):
                    process.kill()

    def close(self) -> None:
        """Clean up after a test, even if the product never started."""
        self._commands.close()
        if hasattr(self, "process"):
            self.stop()


def still_alive(family: list[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended after 2 s."""
    try:
        return list(psutil.wait_procs(family, timeout=2)[1])
    except FileNotFoundError:  # psutil meets a process between its end and its parent's wait
        return [process for process in family if process.is_running()]


@contextmanager
def started_stack(*options: str, administrator: bool = False, env: dict[str, str] | None = None) -> Iterator[Stack]:
    """A running product in a prepared data directory, which is removed at the end."""
    directory = prepare(Path(tempfile.mkdtemp(prefix="mcpadmin-stack-")), administrator=administrator)
    product = Stack(directory, *options, env=env)
    try:
        yield product.start()
    finally:
        product.close()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The product with its first administrator (ADMIN), shared by all tests of the session, which must clean up."""
    environment = {
        "MCPADMIN_RECONNECT_EARLY_CEILING_SECONDS": "60",  # leaves time to watch the retry countdown
        "MCPADMIN_TRIES_PER_MINUTE": "0",  # all tests together are one user
    }
    with started_stack(env=environment) as product:
        product.create_admin()
        yield product
        assert "NoPermission" not in product.output  # the users of the embedded Valkey have all that the product needs


@pytest.fixture
def make_stack() -> Iterator[Callable[..., Stack]]:
    """`make_stack(*options, env=..., administrator=True)`: a product for one test, stopped and removed at its end.

    Unless the test names a data directory, it gets a prepared one: nothing to migrate in SQLite, no static file to
    collect.
    """
    started: list[Stack] = []

    def make(
        *options: str, env: dict[str, str] | None = None, data_dir: Path | None = None, administrator: bool = False
    ) -> Stack:
        directory = data_dir or Path(tempfile.mkdtemp(prefix="mcpadmin-own-"))
        if data_dir is None:
            prepare(directory, database="DATABASE_URL" not in (env or {}), administrator=administrator)
        started.append(Stack(directory, *options, env=env))
        return started[-1]

    yield make
    for product in started:
        product.close()
        shutil.rmtree(product.data_dir, ignore_errors=True)
