"""What set-up compiles is what pytest and Python then use."""

import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.tools.setup_bytecode import bytecode_of_test, sources, write
from tests.tools.stack import clean_environment

pytestmark = pytest.mark.integration


def test_pytest_and_python_find_the_bytecode_that_was_written(tmp_path: Path) -> None:
    test, helper, broken = tmp_path / "test_it.py", tmp_path / "helper.py", tmp_path / "test_broken.py"
    test.write_text("import helper\n\ndef test_it():\n    assert helper.ONE == 2\n")
    helper.write_text("ONE = 1\n")
    broken.write_text("def test_it(:\n")
    for file in (test, helper, broken):
        write(file)
    written = [bytecode_of_test(test), Path(cache_from_source(str(helper)))]
    before = [file.stat().st_ino for file in written]  # pytest and Python replace the file when they write it
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(test)]
    environment = clean_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert "assert 1 == 2" in done.stdout, "the assertion is a rewritten one"
    assert [file.stat().st_ino for file in written] == before
    assert not bytecode_of_test(broken).exists()


def test_environments_and_packages_of_node_are_left_out(tmp_path: Path) -> None:
    for folder in (".venv", "node_modules", "peers"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.py").touch()
    assert list(sources(tmp_path)) == [tmp_path / "peers" / "one.py"]
