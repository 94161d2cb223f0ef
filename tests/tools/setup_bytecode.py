"""Writes the bytecode of the product and of the tests, as Python and pytest do when they import a file. Otherwise the
processes of all phases would compile the same files at the same time.

python -m tests.tools.setup_bytecode

pytest compiles test files itself, to rewrite their assertions; the functions that do it are not public. A file that
cannot be compiled is left to the test run, which reports it.
"""

import compileall
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from _pytest.assertion import rewrite

from tests.tools.run_tests import ROOT, pytest

FOLDERS = ("mcpadmin", "servers", "sessions", "tests")
BY_PYTEST = ("test_*.py", "conftest.py")
PROCESSES = 2
#: a small one
ANY_TEST_FILE = ROOT / "tests" / "tools" / "test_page_words.py"


class _Silent:
    """What pytest tells of its work."""

    @staticmethod
    def trace(words: str) -> None:
        pass


def sources(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "node_modules"]
        yield from (Path(place, name) for name in names if name.endswith(".py"))


def write(file: Path) -> None:
    if not any(fnmatch(file.name, pattern) for pattern in BY_PYTEST):
        compileall.compile_file(file, quiet=2)
        return
    pyc = bytecode_of_test(file)
    with suppress(SyntaxError, OSError):
        if rewrite._read_pyc(file, pyc) is None:
            pyc.parent.mkdir(parents=True, exist_ok=True)
            source_hash, code = rewrite._rewrite_test(file, _NO_CONFIG)
            rewrite._write_pyc(_SILENT, code, source_hash, pyc)


def bytecode_of_test(file: Path) -> Path:
    return rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)


_SILENT: Any = _Silent
_NO_CONFIG: Any = None


def main() -> None:
    plugins = pytest("--collect-only", "--quiet", "-p", "no:cacheprovider", str(ANY_TEST_FILE), captured=True)
    files = [file for folder in FOLDERS for file in sources(ROOT / folder)]
    with ProcessPoolExecutor(PROCESSES) as pool:
        for _ in pool.map(write, files, chunksize=20):
            pass
    plugins.communicate()  # which pytest rewrites too, and Hypothesis with them


if __name__ == "__main__":
    main()
