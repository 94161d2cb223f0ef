"""If `up` is the first process of a container, it runs below its own init.

The kernel makes every orphan in the container a child of its first process, including what a person left running there
(`docker exec`). `up` kills the orphans that it inherits: as a child of that process, it inherits only those of its
parts.
"""

import os
import signal

FIRST = 1


def run_below_init() -> None:
    """Returns in the process that continues as `up`. The first process passes signals on, and ends with the status of
    `up`. Call it before any thread starts."""
    if os.getpid() != FIRST:
        return
    passed_on = {signal.SIGTERM, signal.SIGINT}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        passed_on.add(signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*passed_on, signal.SIGCHLD})
    child = os.fork()
    if child:
        os.closerange(3, 256)  # `up` alone holds its socket
        raise SystemExit(_status_of(child, passed_on))
    os.setsid()  # or Ctrl-C would reach it twice
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _status_of(child: int, passed_on: set[signal.Signals]) -> int:
    while True:
        received = signal.sigwait({*passed_on, signal.SIGCHLD})
        if received != signal.SIGCHLD:
            os.kill(child, received)  # reaped only below, so it is still this process
            continue
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if ended[0] == child:
                status = os.waitstatus_to_exitcode(ended[1])
                return status if status >= 0 else 128 - status
