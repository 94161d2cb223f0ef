"""Every cell that a real server declares is green, and docs/interop.md says so.

`make test` runs the current servers, which cover all verbs, transports and revisions; `make test-all` runs all servers.
"""

from collections.abc import Sequence
from difflib import unified_diff

import pytest

from sessions.mcp.core.versions import REVISIONS, Era
from tests.interop.cells import GREEN, GREEN_ANEW, Matrix, Row, summary
from tests.interop.matrix import run_matrix
from tests.interop.page import PAGE, lines_about, page
from tests.interop.plans import ELICITED, TOOLBOX
from tests.interop.roster import KINDS, Entry, one_table, roster
from tests.interop.verbs import NOT_DECLARED, NOT_IN_REVISION, Declared, Verb, why_empty
from tests.interop.visit import filled
from tests.peers.peers import peer_command

TOOLS = ["echo", "slow", "log", "touch", "ask_model", "ask_person"]
CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}, "logging": {}}
NEWEST_LEGACY = "2025-11-25"
#: the SDKs that still get releases, the reference server, and one bridge
CURRENT = {"sdk1", "sdk2", "fastmcp", "ts", "ts2", "everything", "supergateway"}


def run(entries: Sequence[Entry]) -> Matrix:
    """Run the matrix. Skips when a server is not installed."""
    for entry in entries:
        peer_command(entry.name)
    ran = run_matrix(entries)
    print("\n".join(summary(ran)))
    return ran


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """One run of the current servers for all tests of this module."""
    entries = roster(str(tmp_path_factory.mktemp("interop")), None)
    return run([entry for entry in entries if entry.name in CURRENT])


@pytest.fixture(scope="module")
def matrix(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """One run of all servers for all tests of this module."""
    with one_table(postgres_url) as url:
        return run(roster(str(tmp_path_factory.mktemp("interop")), url))


def assert_all_green(matrix: Matrix) -> None:
    assert matrix.reds == []
    assert matrix.owed == matrix.green


def assert_wide(matrix: Matrix, servers: int) -> None:
    """Both eras cover all verbs, and the run covers all transports and revisions."""
    assert len(matrix.servers) >= servers
    assert matrix.transports == set(KINDS.values())
    assert matrix.revisions == set(REVISIONS)
    assert {era: set(Verb) - matrix.shown(era) for era in Era} == {era: set() for era in Era}


def differences(written: list[str], seen: list[str]) -> list[str]:
    return list(unified_diff(written, seen, "written", "seen", lineterm="", n=0))


@pytest.mark.long
@pytest.mark.integration
@pytest.mark.slow
class TestCurrentServers:
    def test_every_cell_that_a_current_server_owes_is_green(self, current: Matrix) -> None:
        assert_all_green(current)

    def test_they_show_each_verb_in_each_era_and_all_transports_and_revisions(self, current: Matrix) -> None:
        assert_wide(current, len(CURRENT))

    def test_the_page_tells_of_each_of_them_row_by_row_what_was_seen(self, current: Matrix) -> None:
        """After a change of servers or client, run python -m tests.interop.write."""
        written, seen = PAGE.read_text(), page(current)
        found = [line for server in current.servers for line in lines_about(server, seen)]
        assert len(found) > len(current.rows) + len(current.servers)
        assert differences([line for server in current.servers for line in lines_about(server, written)], found) == []


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.long
class TestAllServers:
    def test_every_cell_that_a_server_owes_is_green(self, matrix: Matrix) -> None:
        assert_all_green(matrix)

    def test_they_show_each_verb_in_each_era_and_all_transports_and_revisions(self, matrix: Matrix) -> None:
        assert_wide(matrix, 12)

    def test_the_page_is_what_was_seen(self, matrix: Matrix) -> None:
        assert differences(PAGE.read_text().splitlines(), page(matrix).splitlines()) == []


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
    """A server that declares logging but lists none of our tools for it gets a red cell, not an empty one."""
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


def test_what_a_page_says_of_one_server_is_found_among_the_others() -> None:
    rows = [Row(title, version, "stdio", NEWEST_LEGACY, "stdio") for title in "AB" for version in ("1.2", "1.20")]
    lines = lines_about(("A", "1.2"), page(Matrix(rows)))
    assert [lines[0][:11], lines[1], len(lines)] == ["| A | 1.2 |", "### A 1.2", 6]
    assert lines[5].startswith("| stdio | 2025-11-25 | ")
    assert lines_about(("C", "1.2"), page(Matrix(rows))) == []


def test_a_form_is_filled_with_its_defaults_and_what_has_to_be_written() -> None:
    fields = {"city": {"type": "string"}, "visits": {"type": "integer", "default": 1}, "note": {"type": "string"}}
    assert filled({"properties": fields, "required": ["city", "visits"]}) == {"city": ELICITED, "visits": 1}
