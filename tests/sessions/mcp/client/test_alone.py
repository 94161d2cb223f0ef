"""The three layers of the client need nothing outside of them, and each protocol method is spelled in one place."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
RINGS = [ROOT / "sessions" / "mcp" / ring for ring in ("core", "oauth", "transports", "client")]


def test_protocol_transports_and_client_drive_a_real_server_where_django_cannot_be_imported() -> None:
    script, server = HERE / "without_django.py", HERE / "task_server.py"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {run(script)}", str(server), "legacy"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith("2025-11-25 ")
    assert said[0].endswith(' "done"')
    assert said[1] == "loaded of others: []"


def run(script: Path) -> str:
    return f"import runpy; sys.argv[0] = {str(script)!r}; runpy.run_path({str(script)!r}, run_name='__main__')"


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for ring in RINGS:
        for path in sorted(ring.rglob("*.py")):
            yield path, ast.parse(path.read_text())


@cache
def literals() -> list[tuple[str, set[str]]]:
    """The string constants of each module's code, without docstrings. No tree stays in memory."""
    return [(path.name, set(_literals(tree))) for path, tree in sources()]


def _literals(tree: ast.Module) -> Iterator[str]:
    prose = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in prose]
    return (node.value for node in constants if isinstance(node.value, str))


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "resources/read", "prompts/get", "tasks/get"])
def test_a_method_is_spelled_in_one_module_of_the_client(method: str) -> None:
    """All other modules use the constant."""
    assert [name for name, words in literals() if method in words] == ["methods.py"]


def test_a_call_is_sent_from_one_place() -> None:
    """Other modules may compare with the method, but only one builds the request."""
    asking = [
        path.name
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "RequestSpec"
        and any(ast.unparse(argument).endswith("TOOLS_CALL") for argument in node.args)
    ]
    assert asking == ["client.py"]


def test_nothing_in_the_rings_imports_what_is_outside_of_them() -> None:
    outside = {"django", "celery", "channels", "servers", "mcpadmin"}
    found = [
        (path.name, module)
        for path, tree in sources()
        for module in imported(tree)
        if module.partition(".")[0] in outside or module.startswith("sessions.")
    ]
    assert found == []


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
