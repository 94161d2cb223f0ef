"""Starts a stdio server late, like a launcher that installs first: late_start.py SECONDS MANNER COMMAND [ARGUMENT ...].

The pipe keeps what arrives on stdin in the meantime, and the server reads it. MANNER: `silent`; `chatty` prints ten
lines to stderr; `noisy` prints a line to stdout that is not a message.
"""

import os
import sys
import time

seconds, manner, command = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
for number in range(10):
    if manner == "chatty":
        print(f"fetching package {number + 1} of 10", file=sys.stderr, flush=True)
    if manner == "noisy" and number == 0:
        print("Downloading the server ...", flush=True)
    time.sleep(seconds / 10)
os.execv(command[0], command)  # noqa: S606  the server replaces this process
