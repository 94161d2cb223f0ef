"""Configuration of all tests. The fixtures live in tests/tools/, one file per subject."""

import gc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.tools.run_tests import WITH_BROWSER, WITH_PRODUCT
from tests.tools.scheduling import ByFileAndWorld

TESTS = Path(__file__).parent
gc.disable()  # what pytest imports and collects stays; to look at it again and again takes a fifth of the collection
# No test may depend on the speed of the machine.
hypothesis_settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("any machine")
hypothesis_settings.register_profile("short", hypothesis_settings.get_profile("any machine"), max_examples=25)

pytest_plugins = [
    "tests.tools.deadline",
    "tests.tools.notes",
    "tests.tools.database",
    "tests.tools.valkey",
    "tests.tools.postgres",
    "tests.tools.stack",
    "tests.tools.browser",
]

MARKS_OF_FIXTURES = {
    "valkey": "integration",
    "stack": "up",
    "page": "browser",
    "browser": "browser",
    "postgres_url": "postgres",
}


def pytest_configure(config: pytest.Config) -> None:
    """Without the long tests, generated ones draw a quarter of their examples. They are random: many runs draw many."""
    if "not long" in config.option.markexpr:
        hypothesis_settings.load_profile("short")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by its fixtures. A test without any is a unit test unless it is marked otherwise."""
    for item in items:
        used = MARKS_OF_FIXTURES.keys() & set(getattr(item, "fixturenames", ()))
        for fixture in used:
            item.add_marker(MARKS_OF_FIXTURES[fixture])
        folders = (
            WITH_BROWSER
            if item.get_closest_marker("browser")
            else WITH_PRODUCT
            if item.get_closest_marker("up")
            else ()
        )
        if folders and not any(item.path.is_relative_to(TESTS / folder) for folder in folders):
            raise pytest.UsageError(f"{item.nodeid} starts a product or a browser: see WITH_PRODUCT in run_tests.py")
        if not used and item.get_closest_marker("integration") is None:
            item.add_marker("unit")


def pytest_collection_finish() -> None:
    """All tests and modules stay to the end. Without this each collection of garbage looks at them, for 0.4 s."""
    gc.freeze()
    gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFileAndWorld | None:
    return ByFileAndWorld(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture
def argon2(settings: object) -> None:
    """Use the product's password hasher instead of the fast one."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
