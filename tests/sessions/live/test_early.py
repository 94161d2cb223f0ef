"""Hints of a call that no one listens to yet."""

from typing import Any

from sessions.live.early import MOST_STEPPING, STEPS, EarlyHints
from sessions.live.hub import Hub


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


def test_who_listens_second_still_learns_of_the_end() -> None:
    """The request that placed a call may come to listen after an equal one that was attached to the call."""
    hub: Any = object.__new__(Hub)
    hub._watchers, hub._early, hub._own, hub.streams = {}, EarlyHints(), {}, {}
    end = {"t": "call.a", "kind": "call", "seq": 3, "rows": None}
    first: list[Any] = []
    second: list[Any] = []
    hub.watch("call.a", first.append)
    hub._received(step("call.a", 1))
    hub._received(end)
    hub.watch("call.a", second.append)
    assert first == [step("call.a", 1), end]
    assert second == [end]


def test_steps_that_no_one_takes_are_bounded() -> None:
    early = EarlyHints()
    for number in range(3 * STEPS):
        early.put(step("call.a", number))
    assert early.take("call.a") == [step("call.a", number) for number in range(STEPS)]
    for number in range(MOST_STEPPING + 1):
        early.put(step(f"call.{number}", 0))
    assert early.take("call.0") == []
    assert len(early.take("call.1")) == 1
