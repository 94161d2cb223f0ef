"""The worker: Celery's app with the session host. Only workers import this module.

`up` runs it as a program, which is `celery -A mcpadmin.worker worker` without the rest of Celery's command line: loading
all its commands costs 7 MB of each worker and a sixth of its start.
"""

import sys
from argparse import ArgumentParser

from mcpadmin import hardening

hardening.harden()  # before anything reads a setting or opens a file

from mcpadmin import collector  # noqa: E402  # as above
from mcpadmin.celery import app  # noqa: E402  # as above
from mcpadmin.up import ready  # noqa: E402  # as above

collector.pause()
ready.start_django()

# After Django's own start: they need models. All is loaded here, while `up` may still be preparing the database.
from mcpadmin.beat import BeatStep  # noqa: E402  # after Django's own start
from servers import keyring  # noqa: E402  # after Django's own start
from sessions import tasks  # noqa: E402  # after Django's own start
from sessions.host.boot import HostStep  # noqa: E402  # after Django's own start

__all__ = ["app", "tasks"]

app.steps["worker"] |= {HostStep, BeatStep}
keyring.keep_renewed()
collector.settle()
ready.wait_until_prepared()


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(prog="python -m mcpadmin.worker", description="Run one worker.")
    parser.add_argument("-n", "--hostname", required=True, help="its Celery node name, such as worker1@host")
    parser.add_argument("--beat-thread", action="store_true", help="also send the scheduled tasks")
    given = parser.parse_args(arguments)
    worker = app.Worker(
        hostname=given.hostname,
        beat_thread=given.beat_thread,
        loglevel="INFO",
        quiet=True,
        no_color=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return worker.exitcode or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
