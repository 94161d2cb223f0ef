"""The official suite through the door for agents, in short: the scenarios that need what lies between a request and its
response. `make conformance` runs all of them, in front of servers of both eras, and checks the ledger."""

from pathlib import Path

import pytest

from tests.conformance import door, suite
from tests.sessions.agents.product import Product

pytestmark = pytest.mark.up
#: each covers a different code path
TELLING = [
    ("2025-11-25", "legacy", "tools-call-with-logging"),
    ("2025-11-25", "modern", "tools-call-sampling"),
    ("2026-07-28", "modern", "input-required-result-multiple-input-requests"),
    pytest.param("2026-07-28", "modern", "server-stateless", marks=pytest.mark.long),  # it waits for what must not come
]


@pytest.fixture(scope="module")
def token(product: Product) -> str:
    if not suite.installed():
        pytest.skip("the conformance suite is missing: run tests/tools/setup_peers.py")
    return product.token("list", "read", "call", "sampling", label="conformance")


@pytest.mark.parametrize(("revision", "era", "scenario"), TELLING)
def test_a_scenario_passes_through_the_door(
    product: Product, token: str, revision: str, era: str, scenario: str, tmp_path: Path
) -> None:
    with door.forwarder(product.stack.base_url, token) as base:
        (found,) = door.run_one(scenario, revision, f"{base}/mcp/suite-{era}", tmp_path)
    assert found.problems == ()
    assert found.counts["SUCCESS"]


def test_every_server_scenario_that_a_revision_requires_is_run_by_make_conformance() -> None:
    if not suite.installed():
        pytest.skip("the conformance suite is missing: run tests/tools/setup_peers.py")
    assert {revision: len(door.required(revision)) for revision in door.REVISIONS} == {
        "2025-11-25": 30,
        "2026-07-28": 37,
    }
