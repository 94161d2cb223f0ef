"""A scripted hostile peer over stdio. Standard library only.

    python -m tests.peers.hostile.hostile_stdio <scenario> [bait]

The scenarios of calls.py and lists.py, and those below that only a child process can play.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from . import messages
from .calls import CALLS
from .lists import LISTS
from .messages import KIB, MIB, Big, Said
from .server import Hostile

SPEAKING = threading.Lock()


def write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def say(said: Said) -> None:
    if isinstance(said, float):
        time.sleep(said)
        return
    with SPEAKING:
        for piece in said.pieces() if isinstance(said, Big) else (said,):
            write(piece)
        write(b"\n")


# -- what only bytes can do


def endless_line() -> None:
    """Text that is no message, without a line's end."""
    while True:
        write(b"x" * MIB)


def endless_message() -> None:
    write(b'{"jsonrpc":"2.0","result":{"text":"')
    while True:
        write(b"x" * MIB)


def giant_print() -> None:
    write(b"x" * (20 * MIB) + b"\n")


def half_a_message() -> None:
    write(b'{"jsonrpc":"2.0",')


def one_byte_at_a_time() -> None:
    write(b'{"jsonrpc":"2.0","result":{"text":"')
    while True:
        write(b"x")
        time.sleep(0.02)


def stderr_flood() -> None:
    while True:
        os.write(2, b"e" * 64 * KIB)


def silence() -> None:
    """Nothing at all."""


BYTES: dict[str, Callable[[], None]] = {
    scene.__name__.replace("_", "-"): scene
    for scene in (endless_line, endless_message, giant_print, half_a_message, one_byte_at_a_time, stderr_flood, silence)
}


def main(scenario: str) -> None:
    """The attack runs in a separate thread, so that the end of stdin ends the process immediately."""
    hostile = Hostile(scenario)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if hostile.evil(message):
            threading.Thread(target=play, args=(scenario, hostile, message), daemon=True).start()
        else:
            tell(hostile, message)
    os._exit(0)


def play(scenario: str, hostile: Hostile, message: dict[str, Any]) -> None:
    if scenario in BYTES:
        BYTES[scenario]()
    else:
        tell(hostile, message)


def tell(hostile: Hostile, message: dict[str, Any]) -> None:
    for said in hostile.answers(message):
        say(said)


if __name__ == "__main__":
    names = {*CALLS, *LISTS, *BYTES}
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in names:
        sys.exit(f"usage: hostile_stdio.py {{{','.join(sorted(names))}}} [bait]")
    messages.BAIT = sys.argv[2] if len(sys.argv) == 3 else messages.BAIT
    main(sys.argv[1])
