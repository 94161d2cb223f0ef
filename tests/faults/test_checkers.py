"""Each checker accepts a clean history and reports its own kind of violation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.agents import contradictions
from tests.faults.checkers import (
    CallHistory,
    Effect,
    Fence,
    Histories,
    gaps,
    left_behind,
    not_kept,
    problems,
    read_effects,
    too_few_successes,
)
from tests.faults.programs import Note, Notes, Told
from tests.faults.slopes import Samples, theil_sen

EVENTS = {"request": 1, "send": 1, "finish": 1}
CALL = CallHistory("0a-1", "a", "succeeded", True, 1, EVENTS)


def clean() -> Histories:
    return Histories(effects=[Effect("a", "0a1", 7)], calls=[CALL], accepted={"0a-1"})


def with_call(**changes: Any) -> Histories:
    told = clean()
    told.calls = [replace(CALL, **changes)]
    return told


def test_a_clean_history_has_no_problem() -> None:
    assert problems(clean()) == []


def planted_stranger() -> Histories:
    told = clean()
    told.effects.append(Effect("b"))
    return told


def planted_duplicate() -> Histories:
    told = clean()
    told.effects.append(Effect("a", "0a1", 8))
    return told


def planted_trace() -> Histories:
    return replace(clean(), effects=[Effect("a", "0ff")])


def planted_acceptance() -> Histories:
    return replace(clean(), accepted={"0a-1", "0b-2"})


def planted_zombie() -> Histories:
    """Epoch 3 sends after epoch 5 became ready. Epochs of another server are independent."""
    fences = [Fence("s", False, 3), Fence("t", False, 9), Fence("s", True, 3), Fence("s", False, 5)]
    return replace(clean(), fences=[*fences, Fence("s", True, 5), Fence("s", True, 3)])


@pytest.mark.parametrize(
    ("told", "checker"),
    [
        (planted_stranger(), "effects_without_intent"),
        (planted_duplicate(), "more_effects_than_attempts"),
        (planted_trace(), "effects_of_another_call"),
        (with_call(state="expired", attempts=0, events=EVENTS | {"send": 0}), "states_that_lie"),
        (replace(clean(), effects=[]), "states_that_lie"),
        (with_call(state="sent", final=False, events=EVENTS | {"finish": 0}), "calls_without_end"),
        (planted_zombie(), "sends_under_an_overtaken_epoch"),
        (planted_acceptance(), "accepted_without_row"),
        (with_call(events=EVENTS | {"finish": 2}), "events_that_do_not_fit"),
        (with_call(attempts=2), "events_that_do_not_fit"),
        (replace(clean(), chain_whole=False), "broken_chain"),
    ],
    ids=lambda value: value if isinstance(value, str) else "planted",
)
def test_what_was_planted_is_reported_by_its_checker_alone(told: Histories, checker: str) -> None:
    assert [line.split(":")[0] for line in problems(told)] == [checker]


def test_a_run_without_a_success_contradicts_nothing_and_is_reported() -> None:
    ended_well = Histories(calls=[replace(CALL, state="not_sent", attempts=0, events=EVENTS | {"send": 0})] * 8)
    ended_well.accepted = {CALL.uid}
    assert problems(ended_well) == []
    assert not_kept(ended_well) == ["8 of 1 accepted calls did not succeed: {'not_sent': 8}"]
    assert too_few_successes(ended_well, 8) == ["0 of 8 requested calls succeeded"]
    refused = Histories()
    assert problems(refused) == []
    assert too_few_successes(refused, 8) == ["0 of 8 requested calls succeeded"]
    assert not_kept(clean()) == []
    assert too_few_successes(clean(), 20) == []
    assert too_few_successes(clean(), 21) != []


@pytest.mark.parametrize(
    ("note", "effects", "words"),
    [
        (Note("a", "t", Told.SUCCEEDED), 1, ""),
        (Note("a", "t", Told.UNKNOWN), 0, ""),
        (Note("a", "t", Told.UNKNOWN), 1, ""),
        (Note("a", "t", Told.NOT_RUN), 0, ""),
        (Note("a", "t"), 1, "never answered"),
        (Note("a", "t", Told.SUCCEEDED), 0, "had no effect"),
        (Note("a", "t", Told.NOT_RUN), 1, "had its effect"),
        (Note("a", "t", Told.STRANGE), 1, "was told"),
        (Note("a", "t", Told.SUCCEEDED, call="0b-2"), 1, "has no row"),
        (Note("a", "t", Told.SUCCEEDED), 2, "done 2 times"),
    ],
)
def test_what_a_program_was_told_is_held_against_what_happened(note: Note, effects: int, words: str) -> None:
    told = replace(clean(), effects=[Effect("a", "0a1", 7)] * effects)
    found = contradictions(Notes([note]), told)
    assert [words in line for line in found] == [True] * bool(words)


def test_a_second_attempt_that_was_recorded_may_have_a_second_effect() -> None:
    told = planted_duplicate()
    told.calls = [replace(CALL, attempts=2, events=EVENTS | {"send": 2})]
    assert problems(told) == []


def test_an_answer_that_came_late_is_an_event_beside_the_end() -> None:
    assert problems(with_call(events=EVENTS | {"finish-late": 1})) == []


@pytest.mark.parametrize(
    ("seqs", "word"),
    [([1, 3, 4], "missing"), ([1, 2, 2, 3, 4], "twice"), ([1, 3, 2, 4], "out of order"), ([1, 2, 3, 4, 5], "beyond")],
)
def test_a_planted_gap_is_named(seqs: list[int], word: str) -> None:
    assert gaps([1, 2, 3, 4], 4) == []
    assert any(line.startswith(word) for line in gaps(seqs, 4))


def test_what_grew_beyond_its_room_is_left_behind() -> None:
    assert left_behind({"descriptors": 20}, {"descriptors": 22}, {"descriptors": 2}) == []
    assert left_behind({"descriptors": 20}, {"descriptors": 23}, {"descriptors": 2}) == [
        "descriptors: 20 before, 23 after"
    ]


def test_the_account_of_the_server_is_read_without_its_other_lines(tmp_path: Path) -> None:
    file = tmp_path / "effects"
    assert read_effects(file) == []
    file.write_text("life\na\t-\t7\n")
    assert read_effects(file) == [Effect("a", "-", 7)]


def test_a_slope_is_that_of_most_samples_and_not_of_a_wild_one() -> None:
    level = [(float(second), 100.0) for second in range(0, 600, 5)]
    assert theil_sen([*level, (601.0, 900.0)]) == 0
    growing = [(at, 100 + at * 0.01) for at, _ in level]
    assert theil_sen(growing) == pytest.approx(0.01)
    samples = Samples()
    for at, value in [(0.0, 1.0), (10.0, 50.0), (20.0, 50.0)]:
        samples.add(at, {"fds": value})
    assert (samples.slope("fds", 5), samples.span("fds", 5)) == (0.0, "50 to 50")


def test_what_comes_and_goes_has_no_slope_and_one_that_never_closes_has() -> None:
    coming_and_going, leaking = Samples(), Samples()
    for number in range(240):
        at, pooled = 5.0 * number, (7 * number) % 12
        coming_and_going.add(at, {"fds": 40 + pooled + (number > 120 and number % 12 > 2) * 6})
        leaking.add(at, {"fds": 40 + pooled + number // 30})
    assert coming_and_going.floor_slope("fds", 0) == 0
    assert leaking.floor_slope("fds", 0) > 0
