"""What `up` runs: the command line, the environment, the readiness and the time to stop of each part."""

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mcpadmin.up import readiness, valkey
from mcpadmin.up.options import Options

DRAIN_SECONDS = 7.0
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Part:
    name: str
    argv: tuple[str, ...]
    grace: float  # seconds between SIGTERM and SIGKILL; family.STOP_SECONDS bounds the sum
    pass_fds: tuple[int, ...] = ()
    probe: Callable[[], Awaitable[None]] | None = None  # None: the part announces itself on a pipe


def valkey_part(directory: Path, socket: Path) -> Part:
    return Part(
        "valkey", tuple(valkey.arguments(directory, socket)), 0.8, probe=partial(readiness.valkey_answers, socket)
    )


def web_part(options: Options, descriptor: int, port: int) -> Part:
    # An IPv6 socket serves too: the address family that daphne assumes for `--fd` only names the peers.
    options_of_daphne = f"--fd {descriptor} -v 0 --no-server-name --application-close-timeout 2"
    argv = (sys.executable, "-m", "daphne", *options_of_daphne.split(), "mcpadmin.asgi:application")
    return Part("web", argv, 0.9, (descriptor,), partial(readiness.web_answers, options.host, port))


def worker_parts(count: int) -> list[Part]:
    return [_worker(number, "worker" if count == 1 else f"worker-{number}") for number in range(1, count + 1)]


def _worker(number: int, name: str) -> Part:
    words = f"-A mcpadmin.worker worker --pool threads --without-gossip --without-mingle -l INFO -n worker{number}@%h"
    return Part(name, (*_celery(), *words.split()), DRAIN_SECONDS + 0.4)


def beat_part(data_dir: Path) -> Part:
    directory = data_dir / "beat"
    directory.mkdir(mode=0o700, exist_ok=True)
    words = ["-A", "mcpadmin.celery", "beat", "-l", "INFO", "-s"]
    return Part("beat", (*_celery(), *words, str(directory / "schedule")), 0.5)


def _celery() -> tuple[str, ...]:
    """Without its own warning of root: `up` warns, in words that name the consequence."""
    quiet = "ignore:You're running the worker with superuser"
    return (sys.executable, "-W", quiet, "-m", "celery", "-q", "--no-color")


def environment(options: Options, public_url: str, socket: Path, on_terminal: bool) -> dict[str, str]:
    """What makes each part, and any later manage.py command with the same data directory, find the others."""
    env = dict(os.environ)
    env["MCPADMIN_DATA_DIR"] = str(options.data_dir)
    env["MCPADMIN_VALKEY_SOCKET"] = str(socket)
    env["MCPADMIN_PUBLIC_URL"] = public_url
    env["MCPADMIN_DRAIN_SECONDS"] = str(DRAIN_SECONDS)
    env["PYTHONUNBUFFERED"] = "1"
    if options.labels:
        env["MCPADMIN_WORKER_LABELS"] = ",".join(options.labels)
    env.setdefault("DJANGO_SETTINGS_MODULE", "mcpadmin.settings")
    if on_terminal and env.get("MCPADMIN_LOG_FORMAT", "auto") == "auto":
        env["MCPADMIN_LOG_FORMAT"] = "plain"
    return env
