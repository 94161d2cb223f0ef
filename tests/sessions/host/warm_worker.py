"""Starts workers as forks of one process that has loaded the product, to save Python's and the product's start: 1 s of
CPU for each of a hundred workers. Settings are read when the product is loaded, so workers with settings of their own are
forks of a process that has loaded libraries only, which saves half of it. `up` starts each worker as a program; tests
with the fixtures of tests/tools/stack.py show that this works.

`python -m tests.sessions.host.warm_worker product` and `... libraries` are these processes. `WarmWorkers` talks to one.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.tools.prepared import ROOT

#: what the product imports and reads no setting, with much behind it
LIBRARIES = (
    *("django.contrib.auth.hashers", "django.core.management", "django.db.backends.sqlite3.base", "django.db.models"),
    *("django.forms", "django.template", "django.test.signals", "django.urls", "asgiref.sync", "channels"),
    *("celery.apps.worker", "celery.worker.consumer", "celery.worker.worker", "kombu.transport.redis", "redis.asyncio"),
    *("aiohttp", "httpx", "httpx_sse", "twisted.web", "websockets.asyncio.client", "cryptography.x509", "joserfc.jwt"),
    *("jsonschema_rs", "markdown_it", "orjson", "psutil", "rich.console", "structlog", "yaml"),
)


class ForkedWorker:
    """A worker process, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, workers: "WarmWorkers", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._workers = workers
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._descriptor], [], [], 0)[0]:
            os.close(self._descriptor)
            self.returncode = self._workers.reap(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        if self.returncode is None:
            select.select([self._descriptor], [], [], timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class WarmWorkers:
    """Forks workers of a process with this environment, which has loaded the `product` or its `libraries`. `close` ends
    that process."""

    def __init__(self, loaded: str, environment: dict[str, str]) -> None:
        self.environment = environment
        self._one_at_a_time = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.sessions.host.warm_worker", loaded],
            cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def start(self, hostname: str, output: Path, environment: dict[str, str]) -> ForkedWorker:
        return ForkedWorker(self, self._ask("start", hostname, str(output), environment))

    def reap(self, pid: int) -> int:
        """The exit status of a worker that has ended."""
        return self._ask("reap", pid)

    def close(self) -> None:
        self._process.communicate()  # closes its stdin, which ends it

    def _ask(self, *words: str | int | dict[str, str]) -> int:
        with self._one_at_a_time:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
            answer: int = json.loads(self._process.stdout.readline())
        return answer


_warm: dict[str, WarmWorkers] = {}


def start(
    hostname: str, environment: dict[str, str], output: Path, *, often: bool
) -> "ForkedWorker | subprocess.Popen[bytes]":
    """Start a worker. `often`: others with the same environment will follow."""
    loaded = "product" if often else "libraries"
    if loaded not in _warm:
        _warm[loaded] = WarmWorkers(loaded, environment)
        atexit.register(_warm[loaded].close)
    differs = {name for name, _ in environment.items() ^ _warm[loaded].environment.items()}  # in name or value
    # Libraries may have read other variables than ours, such as SSL_CERT_FILE.
    if not differs or (not often and all(name.startswith(("MCPADMIN_", "DATABASE_URL")) for name in differs)):
        return _warm[loaded].start(hostname, output, environment)
    command = [sys.executable, "-m", "mcpadmin.worker", "--hostname", hostname]
    with output.open("wb") as file:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)


def serve(loaded: str) -> None:
    for name in ["mcpadmin.worker"] if loaded == "product" else LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # pages that a collection of a fork does not copy
    for line in sys.stdin:
        match json.loads(line):
            case ["start", hostname, output, environment]:
                answer = os.fork()
                if answer == 0:
                    _redirect(output)
                    os.environ.clear()
                    os.environ.update(environment)
                    sys.exit(importlib.import_module("mcpadmin.worker").main(["--hostname", hostname]))
            case ["reap", pid]:
                answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(answer, flush=True)


def _redirect(output: str) -> None:
    """Nothing of the pipes to the tests is left to the worker and its servers."""
    with open(os.devnull, "rb") as nothing, open(output, "wb") as file:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


if __name__ == "__main__":
    serve(sys.argv[1])
