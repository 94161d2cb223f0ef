"""The real product, started as a user starts it: `manage.py up` in a process and a data directory of its own."""

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.tools import postgres

ROOT = Path(__file__).resolve().parents[2]
READY = re.compile(r"mcpadmin is ready after ([\d.]+) s: (http\S+)")
SETUP_LINK = re.compile(r"(http://\S+/setup/\S+)")
READY_SECONDS = 120.0
STOP_SECONDS = 15.0
ADMIN = ("ada", "correct horse battery staple")


def clean_environment(**more: str) -> dict[str, str]:
    """The shell's environment without anything that configures mcpadmin."""
    ours = ("MCPADMIN_", "DJANGO_", "REDIS_URL", "DATABASE_URL", "CELERY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"PYTHONUNBUFFERED": "1"} | more


class Stack:
    """One running product. `base_url` is known after `start`; everything it prints is in `output`."""

    def __init__(self, data_dir: Path, *options: str, env: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.base_url = ""
        self.lines: list[str] = []
        self._env = clean_environment(**(env or {}))
        self._options = options
        self._changed = threading.Condition()

    def start(self) -> "Stack":
        self.launch()
        match = self.wait_for(READY, READY_SECONDS)
        self.base_url = match[2]
        return self

    def launch(self) -> None:
        """Start without waiting until the product is ready."""
        options = self._options or ("--port", "0")
        command = [sys.executable, "manage.py", "up", "--no-browser", "--data-dir", str(self.data_dir), *options]
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
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for(self, pattern: re.Pattern[str], seconds: float = 30.0, since: int = 0) -> re.Match[str]:
        """The first printed line from number `since` on that matches; fails when `up` ends or time is over."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                for line in self.lines[since:]:
                    if match := pattern.search(line):
                        return match
                left = deadline - time.monotonic()
                if left <= 0 or self.process.poll() is not None:
                    raise AssertionError(f"`up` never printed {pattern.pattern!r}:\n{self.output[-6000:]}")
                self._changed.wait(min(left, 0.5))  # also wakes to see that the process ended

    @property
    def setup_link(self) -> str:
        return self.wait_for(SETUP_LINK)[1]

    @property
    def environment(self) -> dict[str, str]:
        """In which a management command finds this product."""
        return self._env | {"MCPADMIN_DATA_DIR": str(self.data_dir)}

    def manage(self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> str:
        """Run a management command against this product's data; returns what it printed."""
        environment = self.environment | (env or {})
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT, env=environment, input=stdin, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"manage.py {arguments[0]} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def shell(self, code: str) -> str:
        """Run Python with the product's models; returns what it printed."""
        return self.manage("shell", "--no-imports", "-c", code)

    def create_admin(self, username: str = ADMIN[0], password: str = ADMIN[1]) -> tuple[str, str]:
        self.manage(
            "createsuperuser", "--noinput", "--username", username, "--email", "",
            env={"DJANGO_SUPERUSER_PASSWORD": password},
        )  # fmt: skip
        return username, password

    @property
    def database_url(self) -> str:
        """Empty where the product keeps its rows in a SQLite file of its own."""
        return self._env.get("DATABASE_URL", "")

    def rows(self, sql: str, *parameters: object) -> list[Any]:
        """Read the product's database directly."""
        if self.database_url:
            return postgres.rows(self.database_url, sql, parameters)
        with sqlite3.connect(f"file:{self.data_dir / 'mcpadmin.sqlite3'}?mode=ro", uri=True, timeout=10) as database:
            database.row_factory = sqlite3.Row
            return database.execute(sql, parameters).fetchall()

    def write(self, sql: str, *parameters: object) -> None:
        """Change the product's database behind its back."""
        if self.database_url:
            postgres.write(self.database_url, sql, parameters)
            return
        with sqlite3.connect(self.data_dir / "mcpadmin.sqlite3", timeout=30) as database:
            database.execute("PRAGMA legacy_alter_table = ON")  # or a rename is followed by every reference
            database.execute(sql, parameters)

    def family(self) -> list[psutil.Process]:
        """`up` and everything below it."""
        try:
            supervisor = psutil.Process(self.process.pid)
            return [supervisor, *supervisor.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def part(self, *words: str) -> list[psutil.Process]:
        """The processes whose command line holds all these words, e.g. part("mcpadmin.worker")."""
        found = []
        for process in self.family():
            try:
                line = " ".join(process.cmdline())
            except psutil.Error:
                continue  # it ended between the listing and the question
            if all(word in line for word in words):
                found.append(process)
        return found

    def worker_pids(self) -> list[int]:
        return [process.pid for process in self.part("mcpadmin.worker")]

    def kill_worker(self) -> int:
        """SIGKILL to the (first) worker; returns the pid it had."""
        pid = self.worker_pids()[0]
        os.kill(pid, signal.SIGKILL)
        return pid

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop in order and return the exit status; what is still alive after 15 s is killed, and the test fails."""
        family = self.family()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            _, alive = psutil.wait_procs(family, timeout=2)
            for process in alive:
                process.kill()


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The product with its first administrator (ADMIN), shared by all tests of the session: leave no mess."""
    directory = Path(tempfile.mkdtemp(prefix="mcpadmin-stack-"))
    product = Stack(directory)
    try:
        product.start()
        product.create_admin()
        yield product
    finally:
        product.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def make_stack() -> Iterator["type[Stack]"]:
    """`make_stack(*options, env=...)`: a product of the test's own, stopped and removed at its end."""
    started: list[Stack] = []

    def make(*options: str, env: dict[str, str] | None = None, data_dir: Path | None = None) -> Stack:
        directory = data_dir or Path(tempfile.mkdtemp(prefix="mcpadmin-own-"))
        started.append(Stack(directory, *options, env=env))
        return started[-1]

    yield make
    for product in started:
        if hasattr(product, "process"):
            product.stop()
        shutil.rmtree(product.data_dir, ignore_errors=True)
