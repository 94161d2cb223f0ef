import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sessions.live.site import Site


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"site", "own_site"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("integration")


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Shared by all files. Each test makes its own users and servers; workers of earlier tests may be there."""
    with tempfile.TemporaryDirectory(prefix="live-") as directory:
        running = Site(Path(directory))
        yield running
        running.stop()
        print(running.log())
