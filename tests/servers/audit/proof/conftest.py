from pathlib import Path
from typing import Any

import pytest

from tests.servers.audit.proof.log import new_key


@pytest.fixture(autouse=True)
def checkpoint_key(settings: Any, tmp_path: Path) -> None:
    new_key(settings, tmp_path)
