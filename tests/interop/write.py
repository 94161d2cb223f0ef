"""Runs the matrix and writes docs/interop.md: `python -m tests.interop.write`.

Prints what was owed and what was green; exit code 1 when they differ, and then nothing is written.
"""

import signal
import sys
import tempfile
from contextlib import contextmanager

from tests.interop.cells import summary
from tests.interop.matrix import run_matrix
from tests.interop.page import PAGE, page
from tests.interop.roster import roster
from tests.tools.postgres import postgres_url

# The fixture without pytest around it.
cluster = contextmanager(postgres_url.__wrapped__)


def main() -> int:
    # A run that is told to end stops what it started, as at Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with cluster() as url, tempfile.TemporaryDirectory() as directory:
        matrix = run_matrix(roster(directory, url))
    print("\n".join(summary(matrix)))
    if matrix.reds:
        return 1
    PAGE.write_text(page(matrix))
    return 0


if __name__ == "__main__":
    sys.exit(main())
