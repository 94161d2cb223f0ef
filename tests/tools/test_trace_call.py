"""One call stays within its bounds for threads, commits and statements, whatever the speed of the machine."""

import pytest

from tests.tools.trace_call import Part, Trace, of_every_call

pytestmark = [pytest.mark.up, pytest.mark.slow]


def test_a_tool_call_over_stdio_enters_five_threads_and_commits_three_times() -> None:
    with Trace() as trace:
        parts = trace.parts("stdio", calls=4)
    assert set(parts) == {"web", "worker"}
    assert sum(len(part.threads) for part in parts.values()) <= 5
    assert sum(part.commits for part in parts.values()) <= 3
    assert sum(part.statements for part in parts.values()) <= 19
    assert all(part.functions for part in parts.values())


def test_what_only_some_calls_did_is_not_counted() -> None:
    first = {"entered": [["main", "a.py", "f"], ["clock", "a.py", "tick"]], "statements": [["main", "SELECT 1"]]}
    second = {"entered": [["main", "a.py", "f"]], "statements": [["main", "SELECT 1"], ["main", "COMMIT"]]}
    assert of_every_call([first, second]) == Part({"main": frozenset({("a.py", "f")})}, 1, 0)


def test_a_transaction_that_is_not_in_every_window_is_not_counted() -> None:
    beat = [["main", "BEGIN"], ["main", "UPDATE worker SET seen = '12:00'"], ["main", "COMMIT"]]
    call = [["main", "BEGIN"], ["main", "INSERT INTO event VALUES (7, 'it''s')"], ["main", "COMMIT"]]
    same = [["main", "BEGIN"], ["main", "INSERT INTO event VALUES (8, 'x')"], ["main", "COMMIT"]]
    windows = [{"entered": [], "statements": statements} for statements in (beat + call, same + call)]
    assert of_every_call(windows) == Part({}, 1, 1)


def test_what_also_happens_without_a_call_is_not_counted() -> None:
    call = {
        "entered": [["main", "a.py", "f"], ["clock", "a.py", "tick"]],
        "statements": [["main", "SELECT 1"], ["main", "SELECT 2 FROM x"]],
    }
    idle = {"entered": [["clock", "a.py", "tick"]], "statements": [["main", "SELECT 3 FROM x"]]}
    assert of_every_call([call, call], idle) == Part({"main": frozenset({("a.py", "f")})}, 1, 0)
