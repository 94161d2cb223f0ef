"""Runs the matrix and writes docs/interop.md: `python -m tests.interop.write`.

Prints the numbers of owed and green cells. When they differ, it writes nothing and exits with status 1.
"""

import signal
import sys
import tempfile

from tests.interop.cells import summary
from tests.interop.matrix import run_matrix
from tests.interop.page import PAGE, page
from tests.interop.roster import one_table, roster
from tests.tools.postgres import cluster


def main() -> int:
    # On SIGTERM, stop what the run started, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with cluster() as server, one_table(server) as url, tempfile.TemporaryDirectory() as directory:
        matrix = run_matrix(roster(directory, url))
    print("\n".join(summary(matrix)))
    if matrix.reds:
        return 1
    PAGE.write_text(page(matrix))
    return 0


if __name__ == "__main__":
    sys.exit(main())
