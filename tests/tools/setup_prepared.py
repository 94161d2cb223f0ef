"""Builds what tests copy (see prepared.py and postgres.py), while other set-up downloads: the first test that needs it
would wait for it within its own deadline.

python -m tests.tools.setup_prepared [postgres]
"""

import sys
import tempfile
from pathlib import Path

from tests.tools import postgres, prepared

if __name__ == "__main__":
    if sys.argv[1:] == ["postgres"]:
        if programs := postgres.programs():
            postgres.prepared_cluster(programs)
    else:
        with tempfile.TemporaryDirectory() as folder:
            prepared.prepare(Path(folder) / "data")
