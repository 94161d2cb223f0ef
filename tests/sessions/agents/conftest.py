import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from servers.audit import writer
from tests.peers.peers import peer_command
from tests.sessions.agents.door import Door
from tests.sessions.agents.product import Product
from tests.tools.prepared import prepare
from tests.tools.stack import Stack


@pytest.fixture(scope="package")
def product() -> Iterator[Product]:
    """It ends with the last test of this folder, which all run in one process: see tests/tools/scheduling.py."""
    directory = prepare(Path(tempfile.mkdtemp(prefix="mcpadmin-agents-")), administrator=True)
    effects = Path(tempfile.mkdtemp(prefix="mcpadmin-effects-")) / "log"
    # All tests share one user, and those of a module a token; on a fast machine they come close to the defaults.
    limits = {"MCPADMIN_AGENT_REQUESTS_PER_PERSON": "1000", "MCPADMIN_AGENT_REQUESTS_PER_SECOND": "100"}
    stack = Stack(directory, env=limits)
    try:
        stack.start()
        found = Product(stack, effects)
        command = peer_command("sdk2")
        shared = (f"--env=EFFECT_LOG={effects}", f"--write={effects.parent}")
        found.register("Legacy", command, "--era", "legacy", *shared)
        found.register("Modern", command, "--era", "modern", *shared)
        for era in ("legacy", "modern"):
            found.register(f"Asking {era}", peer_command("asking"), "--era", era)
            found.register(f"Suite {era}", peer_command("conformance"), "--era", era)
        found.register("Ours", peer_command("demo"))
        yield found
        print(stack.output[-6_000:])
    finally:
        stack.close()
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(effects.parent, ignore_errors=True)


@pytest.fixture
def ada(valkey: Path) -> Iterator[Any]:
    """An administrator, in a test of the endpoint without a product."""
    yield get_user_model().objects.create_superuser("ada", password="x")
    writer.reset()


@pytest.fixture
async def door() -> Door:
    return Door()
