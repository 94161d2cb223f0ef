"""Runs management commands in forks of one process that has loaded Django, to save Python's and Django's start.

`python -m tests.tools.warm` starts the process in the environment of a product. `Commands` talks to it.
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
from typing import NamedTuple

import django
from django.core.checks import run_checks
from django.core.management import execute_from_command_line, get_commands, load_command_class

from tests.tools.prepared import ROOT


class Done(NamedTuple):
    status: int
    output: str
    errors: str


class Commands:
    """Runs the management commands of one product. The first command starts the process."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = {"DJANGO_SETTINGS_MODULE": "mcpadmin.settings"} | environment
        self._process: subprocess.Popen[str] | None = None
        self._one_at_a_time = threading.Lock()

    def run(self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> Done:
        with self._one_at_a_time:
            process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([arguments, stdin, env or {}]) + "\n")
            process.stdin.flush()
            return Done(*json.loads(process.stdout.readline() or '[1, "", "the process of the commands died"]'))

    def _start(self) -> "subprocess.Popen[str]":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.tools.warm"],
            cwd=ROOT, env=self._environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        return self._process

    def close(self) -> None:
        if self._process is None:
            return
        self._process.communicate()  # closes its stdin, which ends it
        self._process = None


def load() -> None:
    """What a command loads and checks when it starts: the forks find it done."""
    django.setup()
    run_checks()
    for name, app in get_commands().items():
        if app in ("mcpadmin", "servers", "sessions"):
            load_command_class(app, name)
    gc.freeze()  # pages that a collection of a fork does not copy


def obey() -> None:
    load()
    for line in sys.stdin:
        arguments, stdin, environment = json.loads(line)
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            given.write(stdin.encode())
            given.seek(0)
            pid = os.fork()
            if pid == 0:
                for number, file in enumerate((given, output, errors)):
                    os.dup2(file.fileno(), number)
                os.environ.update(environment)
                execute_from_command_line(["manage.py", *arguments])
                sys.exit(0)  # as manage.py exits
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        print(json.dumps([status, *texts]), flush=True)


if __name__ == "__main__":
    obey()
