"""What a command writes: text for people or JSON Lines to stdout, progress and problems to stderr.

A server's text may contain control characters that would move a terminal's cursor or hide text: text output makes them
visible. JSON escapes them.
"""

import json
import os
import sys
from contextlib import suppress
from typing import Any, Final
from unicodedata import east_asian_width

from mcpadmin.command_line.exit_status import Ending, ExitStatus
from mcpadmin.command_line.streams import write_utf_8
from servers.kit.visible import HIDDEN, visible_text

_CLEAR: Final = "\r\x1b[K"
_BAR: Final = 20
_USUAL_COLUMNS: Final = 80


class NotWritten(Exception):
    """Standard output cannot be written, for example to a file on a full disk. The text says why."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(f"The output could not be written: {problem.strerror}.")


class Output:
    """Methods that write to stdout raise NotWritten, and BrokenPipeError when its reader has gone. Text that cannot be
    written to stderr is lost: the exit status says it too."""

    def __init__(self, form: str | None) -> None:
        """`form`: text or json; None: text on a terminal, otherwise json."""
        for stream in (sys.stdout, sys.stderr):
            write_utf_8(stream)
        self.is_json = form == "json" or (form is None and not sys.stdout.isatty())
        self._on_terminal = sys.stderr.isatty()
        self._as_text = self._on_terminal or form == "text"
        self._drawn = False

    # --- stdout ------------------------------------------------------------------------------------------------------
    def record(self, value: Any) -> None:
        """One line of JSON."""
        self._write(f"{_json(value)}\n")

    def text(self, text: str) -> None:
        """A server's text, or ours."""
        self._write(f"{visible_text(text)}\n")

    def raw(self, data: bytes) -> None:
        self._write(data)

    def _write(self, data: str | bytes) -> None:
        self._clear()
        try:
            if isinstance(data, bytes):
                sys.stdout.buffer.write(data)
            else:
                sys.stdout.write(data)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as problem:
            raise NotWritten(problem) from problem

    # --- stderr ------------------------------------------------------------------------------------------------------
    def progress(self, done: float, total: float | None, message: str | None) -> None:
        if self._on_terminal:
            self._say(_CLEAR + _within(_columns() - 1, _drawn(done, total, message)))
            self._drawn = True
        elif not self._as_text:
            self._say(f"{_json({'progress': done, 'total': total, 'message': message})}\n")

    def note(self, words: str) -> None:
        """What a person should know; not part of the result."""
        if self._as_text:
            self._clear()
            self._say(f"{visible_text(words)}\n")

    def warning(self, words: str) -> None:
        """What a program should know too."""
        if self._as_text:
            self.note(words)
        else:
            self._say(f"{_json({'warning': words})}\n")

    def problem(self, ending: Ending, page: str) -> None:
        self._clear()
        if self._as_text:
            lines = [f"mcpadmin: {_LEAD.get(ending.status, '')}{visible_text(ending.words)}"]
            if ending.call:
                lines.append(f"Call {visible_text(ending.call)}: {page}")
            self._say("\n".join(lines) + "\n")
        else:
            named = {"call": ending.call, "page": page} if ending.call else {}
            error = {"status": ending.status.name.lower(), "message": ending.words, **named}
            self._say(f"{_json({'error': error})}\n")

    def _say(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()

    def _clear(self) -> None:
        if self._drawn:
            self._say(_CLEAR)
            self._drawn = False


_LEAD: Final = {
    ExitStatus.OUTCOME_UNKNOWN: "Outcome unknown. ",
    ExitStatus.TIMEOUT: "Timed out. ",
    ExitStatus.UNAVAILABLE: "Not sent. ",
}


def _json(value: Any) -> str:
    """One line. JSON itself escapes only the ASCII control characters."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return HIDDEN.sub(lambda run: json.dumps(run[0])[1:-1], text)


def _drawn(done: float, total: float | None, message: str | None) -> str:
    words = visible_text(message.replace("\n", " ")) if message else ""
    if not total or total <= 0:
        return f"{done:.15g}  {words}"
    share = min(1.0, max(0.0, done / total))
    filled = round(share * _BAR)
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {share:4.0%}  {words}"


def _columns() -> int:
    """The width of stderr's terminal: stdout may be a pipe."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_COLUMNS
    except OSError:
        return _USUAL_COLUMNS


def _within(columns: int, text: str) -> str:
    """As much of the start of the text as fits: a line that wraps is only partly cleared."""
    for place, char in enumerate(text):
        columns -= 2 if east_asian_width(char) in "WF" else 1
        if columns < 0:
            return text[:place]
    return text
