from collections.abc import Iterator

import pytest

from servers.audit import policy


@pytest.fixture(autouse=True)
def _a_policy_of_its_own() -> Iterator[None]:
    policy.forget()
    yield
    policy.forget()
    policy._latest = policy.Policy()
