"""Imitates a launcher that installs first: it writes to stderr for some seconds, then becomes the given server.

slow_start.py COMMAND ARGUMENT... --seconds SECONDS
"""

import os
import sys
import time


def main() -> None:
    *command, _, seconds = sys.argv[1:]
    end = time.monotonic() + float(seconds)
    print("resolving packages", file=sys.stderr, flush=True)
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(0.5, left))
        print(f"installing, {max(left, 0):.1f} s left", file=sys.stderr, flush=True)
    os.execv(command[0], command)  # noqa: S606  the server replaces this process


if __name__ == "__main__":
    main()
