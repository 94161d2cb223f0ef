"""Standard output and error in a pipeline: UTF-8 whatever the locale says, and readers that leave early. Standard library
only."""

import os
import sys
from io import TextIOWrapper
from typing import Final, TextIO

#: the exit status of a command whose reader has gone, such as `| head`
BROKEN_PIPE: Final = 141


def write_utf_8(stream: TextIO) -> None:
    """Lone surrogates, which JSON can express and UTF-8 cannot, are written as JSON escapes."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def let_go() -> None:
    """Drop what could not be written: Python would try again at exit, and change the exit status."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
