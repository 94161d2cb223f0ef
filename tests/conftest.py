"""Fixtures and habits of all tests. The fixtures themselves live in tests/tools/, one file a subject."""

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

# No test may depend on how fast the machine is.
hypothesis_settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("any machine")

pytest_plugins = [
    "tests.tools.deadline",
    "tests.tools.notes",
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test is marked by the fixtures it uses; what uses none of them is a unit test unless it says otherwise."""
    for item in items:
        used = MARKS_OF_FIXTURES.keys() & set(getattr(item, "fixturenames", ()))
        for fixture in used:
            item.add_marker(MARKS_OF_FIXTURES[fixture])
        if not used and item.get_closest_marker("integration") is None:
            item.add_marker("unit")


@pytest.fixture
def argon2(settings: object) -> None:
    """The product's own password hasher instead of the fast one."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
