"""A scripted stdio peer that misbehaves as its argument says. Standard library only.

python evil_stdio.py <scenario>
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from minimal import MIB, answer

STDERR_WORDS = "evil: cannot read /etc/evil.conf: no such file"


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def serve(before: Callable[[dict[str, Any]], bool] = lambda message: False) -> None:
    """Serve correctly. `before` sees each message first and swallows it by returning True."""
    for line in sys.stdin:
        message = json.loads(line)
        if before(message):
            continue
        response = answer(message)
        if response is not None:
            send(response)


def is_call(message: dict[str, Any]) -> bool:
    return message.get("method") == "tools/call"


def exits() -> None:
    """Say why on stderr and exit with status 3, before reading anything."""
    print(STDERR_WORDS, file=sys.stderr, flush=True)
    sys.exit(3)


def exits_quietly() -> None:
    sys.exit(0)


def rubbish() -> None:
    """Print lines that are not JSON-RPC, then only read."""
    for number in range(200):
        print(f"Loading module {number} ... <script>window.pwned='yes'</script> ok")
    sys.stdout.flush()
    sys.stdin.read()


def rubbish_then_fine() -> None:
    print("Welcome to my server!\n\n{}", flush=True)
    serve()


def bytes_() -> None:
    """Print bytes that are not UTF-8."""
    sys.stdout.buffer.write(b"\xff\xfe\x00\x80\n" * 100)
    sys.stdout.buffer.flush()
    sys.stdin.read()


def endless_line() -> None:
    """Print a line of 16 MiB without a line end."""
    for _ in range(16):
        sys.stdout.write("x" * MIB)
        sys.stdout.flush()
    sys.stdin.read()


def silent() -> None:
    """Read everything, respond to nothing."""
    sys.stdin.read()


def deaf() -> None:
    """Neither read nor respond."""
    time.sleep(3600)


def stubborn() -> None:
    """Serve correctly, but ignore the end of stdin and SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    serve()
    time.sleep(3600)


def dies_in_call() -> None:
    def die(message: dict[str, Any]) -> bool:
        if is_call(message):
            print("evil: segmentation fault (as told)", file=sys.stderr, flush=True)
            os._exit(139)
        return False

    serve(die)


def hangs_in_call() -> None:
    serve(is_call)


def answers_twice() -> None:
    def twice(message: dict[str, Any]) -> bool:
        if is_call(message):
            send(answer(message) or {})
        return False

    serve(twice)


def floods_stderr() -> None:
    """Serve correctly after writing 4 MiB to stderr, which blocks until the pipe is drained."""
    for number in range(4096):
        print(f"{number:06d} " + "e" * 1016, file=sys.stderr)
    serve()


def leaves_grandchild() -> None:
    """Serve correctly with a child process that holds stdout open. The first line of stderr is the child's pid."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    print(child.pid, file=sys.stderr, flush=True)
    serve()


SCENARIOS: dict[str, Callable[[], None]] = {
    "fine": serve,
    "big": serve,
    "exit": exits,
    "exit-quietly": exits_quietly,
    "rubbish": rubbish,
    "rubbish-then-fine": rubbish_then_fine,
    "bytes": bytes_,
    "endless-line": endless_line,
    "silent": silent,
    "deaf": deaf,
    "stubborn": stubborn,
    "dies-in-call": dies_in_call,
    "hangs-in-call": hangs_in_call,
    "answers-twice": answers_twice,
    "floods-stderr": floods_stderr,
    "leaves-grandchild": leaves_grandchild,
}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in SCENARIOS:
        sys.exit(f"usage: evil_stdio.py {{{','.join(SCENARIOS)}}}")
    SCENARIOS[sys.argv[1]]()
