"""Hints of a call that no one listens to yet."""

from typing import Any

from sessions.live.early import MOST_STEPPING, STEPS, EarlyHints


def step(topic: str, number: int) -> dict[str, Any]:
    return {"t": topic, "kind": "progress", "seq": None, "rows": [{"progress": number}]}


def test_the_first_steps_of_a_call_wait_for_its_request_in_order_before_its_end() -> None:
    """An agent hears each step of a short call, also if the web process was busy when the first ones came."""
    early = EarlyHints()
    end = {"t": "call.a", "kind": "call", "seq": 3, "rows": None}
    steps = [step("call.a", number) for number in range(3)]
    for hint in (*steps, end):
        early.put(hint)
    assert early.take("call.b") == []
    assert early.take("call.a") == [*steps, end]
    assert early.take("call.a") == []


def test_steps_that_no_one_takes_are_bounded() -> None:
    early = EarlyHints()
    for number in range(3 * STEPS):
        early.put(step("call.a", number))
    assert early.take("call.a") == [step("call.a", number) for number in range(STEPS)]
    for number in range(MOST_STEPPING + 1):
        early.put(step(f"call.{number}", 0))
    assert early.take("call.0") == []
    assert len(early.take("call.1")) == 1
