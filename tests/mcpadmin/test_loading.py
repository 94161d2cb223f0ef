"""What few installations use is not loaded before it is used: it would take memory and time of every start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = "import sys; import {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
RARE = {"jsonpath", "lark", "ninja", "pydantic", "requests", "tiktoken"}


@pytest.mark.integration
@pytest.mark.parametrize(("module", "needed"), [("mcpadmin.asgi", "channels"), ("mcpadmin.worker", "httpx")])
def test_a_process_that_has_just_started_has_loaded_nothing_rare(module: str, needed: str, tmp_path: Path) -> None:
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "mcpadmin.settings", "MCPADMIN_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", CODE.format(module=module)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True)
    loaded = set(done.stdout.split())
    assert {needed, "mcpadmin", "sessions"} <= loaded
    assert loaded & RARE == set()
