"""The official suite as part of `make test`: every scenario that needs no authorization, one by one."""

from pathlib import Path

import pytest

from tests.conformance import suite
from tests.conformance.run import AUTHORIZATION, REVISIONS

pytestmark = [pytest.mark.integration, pytest.mark.slow]
SCORED = {"2025-11-25": 4, "2026-07-28": 7}


@pytest.fixture(scope="module", autouse=True)
def the_suite() -> None:
    if not suite.installed():
        pytest.skip("the conformance suite is missing: run tests/tools/setup_peers.py")


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_required_scenario_without_authorization_passes(revision: str, tmp_path: Path) -> None:
    wanted = suite.required(revision)
    scored = [name for name in wanted.scored if not name.startswith(AUTHORIZATION)]
    others = [name for name in wanted.unscored if not name.startswith(AUTHORIZATION)]
    assert len(scored) == SCORED[revision]
    assert others == ["json-schema-2020-12-preservation"]
    verdicts = [suite.run(name, revision, tmp_path) for name in (*scored, *others)]
    assert {verdict.scenario: verdict.problem for verdict in verdicts if not verdict.passed} == {}
    assert sum(verdict.wire["SUCCESS"] for verdict in verdicts) > 0
    assert sum(verdict.wire["FAILURE"] for verdict in verdicts) == 0


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
