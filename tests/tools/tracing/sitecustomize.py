"""Records what the web process and the worker execute. tests/tools/trace_call.py puts this folder on their path.

A real-time signal begins a recording. The next one ends it and writes `<role>-<pid>-<number>.json` to
MCPADMIN_TRACE_DIR: each project function entered, as [thread, file, function], and each SQL statement, as [thread,
statement].
"""

import json
import os
import signal
import sqlite3
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = f"{Path(__file__).resolve().parents[3]}{os.sep}"
OURS = tuple(f"{ROOT}{app}{os.sep}" for app in ("mcpadmin", "servers", "sessions"))
SIGNAL = signal.SIGRTMIN + 5
ROLES = {"daphne": "web", "mcpadmin.worker": "worker"}


class Recorder:
    def __init__(self, role: str, folder: Path) -> None:
        self._role, self._folder = role, folder
        self._number = 0
        self._recording = False
        self._entered: set[tuple[str, str, str]] = set()
        self._statements: list[tuple[str, str]] = []

    def install(self) -> None:
        connect = sqlite3.connect

        def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection = connect(*args, **kwargs)
            connection.set_trace_callback(self._on_statement)
            return connection

        sqlite3.connect = sqlite3.dbapi2.connect = traced
        threading.setprofile(self._on_frame)
        sys.setprofile(self._on_frame)
        signal.signal(SIGNAL, self._on_signal)
        self._write("ready", {})

    def _on_frame(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._recording and event == "call" and frame.f_code.co_filename.startswith(OURS):
            code = frame.f_code
            self._entered.add((threading.current_thread().name, code.co_filename[len(ROOT) :], code.co_qualname))

    def _on_statement(self, statement: str) -> None:
        if self._recording:
            self._statements.append((threading.current_thread().name, statement))

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._recording = not self._recording
        if self._recording:
            self._entered, self._statements = set(), []
            self._write(f"begun-{self._number}", {})
        else:
            self._write(str(self._number), {"entered": sorted(self._entered), "statements": self._statements})
            self._number += 1

    def _write(self, word: str, content: dict[str, Any]) -> None:
        path = self._folder / f"{self._role}-{os.getpid()}-{word}.json"
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(content))
        unfinished.rename(path)


def _role() -> str:
    words = Path("/proc/self/cmdline").read_bytes().decode(errors="replace").split("\0")
    return next((role for word, role in ROLES.items() if any(word in one for one in words)), "")


if (_folder := os.environ.get("MCPADMIN_TRACE_DIR")) and (_name := _role()):
    Recorder(_name, Path(_folder)).install()
