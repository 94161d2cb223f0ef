"""Log lines that a server can cause without limit are written once and then counted."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sessions.host.logs import repeats
from sessions.host.logs.repeats import KINDS, Repeats


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
async def told(lines: list[str]) -> Any:
    return Repeats(SimpleNamespace(host=lambda text, level: lines.append(f"{level}: {text}")))


async def test_the_first_of_each_is_reported_at_once_and_the_others_are_counted(
    told: Repeats, lines: list[str]
) -> None:
    for text in ("Refused.", "Broken.", *["Refused."] * 9_998):
        told.say(text, "notice")
    assert lines == ["notice: Refused.", "notice: Broken."]
    told.close()
    assert lines[2:] == ["notice: Refused. (9998 more)"]


async def test_a_server_that_makes_each_line_differ_is_counted_too(told: Repeats, lines: list[str]) -> None:
    for number in range(1_000):
        told.say(f"Refused {number}.", "notice")
    told.close()
    assert len(lines) == KINDS + 1
    assert lines[-1] == f"notice: {1_000 - KINDS} more lines like these."


async def test_after_a_while_it_is_reported_again(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "EVERY_SECONDS", 0.0)
    summed = asyncio.Event()

    def host(text: str, level: str) -> None:
        lines.append(text)
        if text.endswith("more)"):
            summed.set()

    told = Repeats(SimpleNamespace(host=host))
    told.say("Refused.", "notice")
    told.say("Refused.", "notice")
    await summed.wait()
    told.say("Refused.", "notice")
    told.close()
    assert lines == ["Refused.", "Refused. (1 more)", "Refused."]
