"""Our client passes the official suite: every scenario without authorization, and one by one the most telling with it.
`make conformance` runs all of them.
"""

from pathlib import Path

import pytest

from tests.conformance import suite
from tests.conformance.run import REVISIONS

pytestmark = [pytest.mark.integration, pytest.mark.slow]
SCORED = {"2025-11-25": 18, "2026-07-28": 32}
AUTHORIZATION = "auth/"
#: each covers a different code path
TELLING = [
    ("2025-11-25", "auth/metadata-var3"),
    ("2026-07-28", "auth/scope-step-up"),
    ("2026-07-28", "auth/dpop-nonce"),
    *(
        pytest.param(revision, scenario, marks=pytest.mark.long)
        for revision, scenario in (
            ("2026-07-28", "auth/authorization-server-migration"),
            ("2026-07-28", "auth/iss-normalized"),
            ("2026-07-28", "auth/client-credentials-jwt"),
            (suite.BEFORE, "auth/2025-03-26-oauth-endpoint-fallback"),
        )
    ),
]


@pytest.fixture(scope="module", autouse=True)
def the_suite() -> None:
    if not suite.installed():
        pytest.skip("the conformance suite is missing: run tests/tools/setup_peers.py")


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_required_scenario_without_authorization_passes(revision: str, tmp_path: Path) -> None:
    wanted = suite.required(revision)
    everything = (*wanted.scored, *wanted.unscored)
    verdicts = [suite.run(name, revision, tmp_path) for name in everything if not name.startswith(AUTHORIZATION)]
    assert {verdict.scenario: verdict.problem for verdict in verdicts if not verdict.passed} == {}
    assert sum(verdict.wire["SUCCESS"] for verdict in verdicts) > 0
    assert sum(verdict.wire["FAILURE"] for verdict in verdicts) == 0


@pytest.mark.parametrize(("revision", "scenario"), TELLING)
def test_a_scenario_with_authorization_passes(revision: str, scenario: str, tmp_path: Path) -> None:
    assert suite.run(scenario, revision, tmp_path).problem == ""


def test_all_that_the_suite_has_for_a_client_is_run_by_make_conformance() -> None:
    sets = [suite.required(revision) for revision in REVISIONS]
    assert {one.name: len(one.scored) for one in sets} == SCORED
    assert [len(one.unscored) for one in sets] == [7, 7]
    assert len(suite.back_compat().scored) == 2


def test_a_driver_that_does_nothing_is_not_taken_for_a_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "DRIVER", "compileall")
    verdict = suite.run("initialize", "2025-11-25", tmp_path)
    assert not verdict.passed


def test_a_driver_that_stops_half_way_is_not_taken_for_a_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "DRIVER", "tests.conformance.half_way")
    verdict = suite.run("tools_call", "2026-07-28", tmp_path)
    assert verdict.counts["SUCCESS"]
    assert verdict.problem == "our driver did not come to its end"
