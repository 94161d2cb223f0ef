import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sessions.live.site import Site

#: the product's limits, smaller where a test would have to wait
SCALED = {"MCPADMIN_REQUEST_SECONDS": "1", "MCPADMIN_CONNECTIONS_PER_ADDRESS": "100"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "site" in getattr(item, "fixturenames", ()):
            item.add_marker("integration")


@pytest.fixture(scope="package")
def site() -> Iterator[Site]:
    """One for all tests here, which one process runs (tests/tools/scheduling.py). The web starts with the limit of open
    files that most systems set: 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, hard))
    with tempfile.TemporaryDirectory(prefix="web-") as directory:
        try:
            running = Site(Path(directory), **SCALED)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        running.do("user", "ada")
        yield running
        running.stop()
        print(running.log())
