"""A part's word to `up` that it really serves: one line on an inherited pipe, so that nobody has to poll or read logs."""

import os

VARIABLE = "MCPADMIN_READY_FD"


def prepare() -> bool:
    """Keep the pipe from our own children (stdio servers). False when this process was not started by `up`."""
    descriptor = os.environ.get(VARIABLE)
    if descriptor is None:
        return False
    os.set_inheritable(int(descriptor), False)
    return True


def announce(**_signal: object) -> None:
    """Receiver of Celery's worker_ready and beat_init."""
    descriptor = os.environ.pop(VARIABLE, None)
    if descriptor is not None:
        os.write(int(descriptor), b"ready\n")
        os.close(int(descriptor))
