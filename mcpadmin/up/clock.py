"""Seconds since the command was typed, Python's own start included."""

import os
import time

_IMPORTED = time.monotonic()


def since_command() -> float:
    try:
        with open("/proc/self/stat") as file:
            started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError):
        return time.monotonic() - _IMPORTED
