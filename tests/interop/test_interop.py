"""Every cell that a real server owes our client is green, and docs/interop.md says so."""

import pytest

from sessions.protocol.versions import REVISIONS, Era
from tests.interop.cells import GREEN, GREEN_ANEW, Matrix, Row, summary
from tests.interop.matrix import run_matrix
from tests.interop.page import PAGE, page
from tests.interop.plans import ELICITED, TOOLBOX
from tests.interop.roster import KINDS, roster
from tests.interop.verbs import NOT_DECLARED, NOT_IN_REVISION, Declared, Verb, why_empty
from tests.interop.visit import filled
from tests.peers.peers import peer_command

TOOLS = ["echo", "slow", "log", "touch", "ask_model", "ask_person"]
CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}, "logging": {}}
NEWEST_LEGACY = "2025-11-25"


@pytest.fixture(scope="module")
def matrix(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """One run for all tests of this module; skipped where a server is not installed."""
    entries = roster(str(tmp_path_factory.mktemp("interop")), postgres_url)
    for entry in entries:
        peer_command(entry.name)
    ran = run_matrix(entries)
    print("\n".join(summary(ran)))
    return ran


@pytest.mark.integration
@pytest.mark.slow
class TestTheRun:
    def test_every_cell_that_a_server_owes_is_green(self, matrix: Matrix) -> None:
        assert matrix.reds == []
        assert matrix.owed == matrix.green

    def test_it_is_wide_enough(self, matrix: Matrix) -> None:
        assert len(matrix.servers) >= 12
        assert matrix.transports == set(KINDS.values())
        assert matrix.revisions == set(REVISIONS)

    @pytest.mark.parametrize("era", list(Era))
    def test_each_verb_is_shown_in_each_era(self, matrix: Matrix, era: Era) -> None:
        """Both eras have all verbs; the modern one in other forms."""
        assert matrix.shown(era) == set(Verb)

    def test_the_page_tells_what_was_seen(self, matrix: Matrix) -> None:
        """After a change of servers or client: python -m tests.interop.write."""
        assert PAGE.read_text() == page(matrix)


def declared(**changes: object) -> Declared:
    whole = {"revision": NEWEST_LEGACY, "capabilities": CAPABILITIES, "tools": TOOLS} | {
        "resources": ["peer://clock"],
        "templates": ["peer://notes/{name}"],
        "prompts": ["summarise"],
    }
    return Declared(**(whole | changes))


def test_a_server_that_declares_everything_owes_every_cell() -> None:
    assert [verb for verb in Verb if why_empty(verb, declared(), TOOLBOX)] == []


@pytest.mark.parametrize(
    ("verb", "changes", "reason"),
    [
        (Verb.LIST, {"capabilities": {}}, NOT_DECLARED),
        (Verb.CALL, {"tools": []}, NOT_DECLARED),
        (Verb.PROGRESS, {"tools": ["echo"]}, NOT_DECLARED),
        (Verb.READ, {"resources": []}, NOT_DECLARED),
        (Verb.TEMPLATE, {"templates": []}, NOT_DECLARED),
        (Verb.SUBSCRIBE, {"capabilities": {"resources": {"subscribe": False}}}, NOT_DECLARED),
        (Verb.PROMPT, {"prompts": []}, NOT_DECLARED),
        (Verb.COMPLETE, {"capabilities": {"prompts": {}}}, NOT_DECLARED),
        (Verb.SAMPLE, {"tools": ["echo"]}, NOT_DECLARED),
        (Verb.ELICIT, {"tools": ["echo"]}, NOT_DECLARED),
        (Verb.ELICIT, {"revision": "2025-03-26"}, NOT_IN_REVISION),
        (Verb.LOG, {"capabilities": {"tools": {}}}, NOT_DECLARED),
    ],
)
def test_an_empty_cell_has_one_of_the_allowed_reasons(verb: Verb, changes: dict[str, object], reason: str) -> None:
    assert why_empty(verb, declared(**changes), TOOLBOX) == reason


def test_what_is_declared_without_a_known_way_to_use_it_is_owed_all_the_same() -> None:
    """A server that says it has a log but lists none of our tools for it makes the run red, not the cell empty."""
    assert why_empty(Verb.LOG, declared(tools=["echo"]), TOOLBOX) == ""
    assert why_empty(Verb.SUBSCRIBE, declared(tools=["echo"]), TOOLBOX) == ""


def test_completion_before_it_had_a_capability_is_owed_by_the_prompt_that_has_it() -> None:
    old = {"revision": "2024-11-05", "capabilities": {"prompts": {}}}
    assert why_empty(Verb.COMPLETE, declared(**old), TOOLBOX) == ""
    assert why_empty(Verb.COMPLETE, declared(**old, prompts=[]), TOOLBOX) == NOT_DECLARED


def test_sums_count_what_is_owed_and_what_is_green() -> None:
    row = Row("A", "1", "stdio", NEWEST_LEGACY, "stdio")
    row.cells = {Verb.CONNECT: GREEN, Verb.CANCEL: GREEN_ANEW, Verb.CALL: "Wrong: no", Verb.LOG: NOT_DECLARED}
    matrix = Matrix([row])
    assert (matrix.owed, matrix.green) == (3, 2)
    assert matrix.reds == ["A 1, stdio, 2025-11-25: call: Wrong: no"]
    assert matrix.shown(Era.LEGACY) == {Verb.CONNECT, Verb.CANCEL}
    assert matrix.shown(Era.MODERN) == set()
    assert "| stdio | 2025-11-25 | ✓ | ✗ | ✗ | ✗ | ✓¹ |" in page(matrix)


def test_a_form_is_filled_with_its_defaults_and_what_has_to_be_written() -> None:
    fields = {"city": {"type": "string"}, "visits": {"type": "integer", "default": 1}, "note": {"type": "string"}}
    assert filled({"properties": fields, "required": ["city", "visits"]}) == {"city": ELICITED, "visits": 1}
