"""The test database of one process: a copy of the prepared one, so no process waits for the migrations."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from servers.audit.proof import triggers
from tests.tools.prepared import copy_database


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_modify_db_settings: None) -> bool:
    """pytest-django then migrates the copy, where nothing is pending. The file disappears with the data directory."""
    copy_database(Path(settings.DATABASES["default"]["TEST"]["NAME"]))
    return True


@pytest.fixture
def tamperable(db: None) -> None:
    """Without the triggers that refuse to have audit events changed, as someone who owns the database can do it. The end of the
    test's transaction, or the flush after it, brings them back."""
    triggers.drop(connection)


@pytest.fixture(autouse=True)
def _privacy_policy_of_this_test() -> Iterator[None]:
    """Each process keeps the policy for seconds, longer than a test takes."""
    yield
    from servers.audit import payload_privacy  # noqa: PLC0415  # needs the settings

    payload_privacy.reset()
