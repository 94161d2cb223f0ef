"""A process that does not answer is explained on the page while it starts, and in its failure."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from servers.secret import MASK, Secret
from sessions.connections.starting import held_up
from sessions.host import opening
from sessions.host.answer_redaction import Redactor
from sessions.host.launch import load
from sessions.host.opening import Diagnosis
from sessions.mcp.core.errors import Fault, TransportError
from sessions.mcp.core.events import DiagnosticLine
from tests.sessions.host.make import make_session

NPX = held_up("npx", ["acme"])


async def test_a_start_that_lasts_shows_stderr_first_and_later_what_may_hold_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "SHOWN_AFTER", 0.01)
    monkeypatch.setattr(opening, "HELD_UP_AFTER", 0.2)
    shown: list[Sequence[str]] = []
    held = asyncio.Event()

    def show(tail: str, hints: Sequence[str]) -> None:
        shown.append(hints)
        if hints:
            held.set()

    task = asyncio.create_task(Diagnosis(Redactor(), "handshake", NPX).show_start(show))
    async with asyncio.timeout(20):
        await held.wait()
    task.cancel()
    assert shown[0] == ()
    assert shown[-1] == NPX


@pytest.mark.parametrize(("fault", "hints"), [(Fault.TIMEOUT, NPX), (Fault.PROCESS_EXITED, ())])
def test_a_start_that_ran_out_of_time_fails_with_what_may_have_held_it_up(fault: Fault, hints: Sequence[str]) -> None:
    error = TransportError(fault, "No answer.", may_have_run=False)
    assert Diagnosis(Redactor(), "handshake", NPX).failure(error).detail == " ".join(("No answer.", *hints))


@pytest.mark.parametrize("of_transport", [True, False])
def test_what_a_page_shows_of_stderr_is_masked_as_the_log_is(of_transport: bool) -> None:
    said = f"hunter2-hunter2 and ghp_{'A' * 36}"
    diagnosis = Diagnosis(Redactor([Secret("hunter2-hunter2")]))
    diagnosis.on_event(DiagnosticLine("stderr", said))
    error = TransportError(Fault.PROCESS_EXITED, said, may_have_run=False, stderr_tail=said if of_transport else "")
    failure = diagnosis.failure(error)
    assert [diagnosis.tail, failure.stderr_tail, failure.detail] == [f"{MASK} and {MASK}"] * 3


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        ("error: invalid peer certificate: UnknownIssuer", "The package registry could not be reached."),
        ("npm error code ENOTFOUND", "MCPADMIN_INHERITED_VARIABLES"),
        ("no licence found", ""),
    ],
)
def test_a_launcher_that_did_not_reach_its_registry_ends_with_what_may_be_missing(tail: str, words: str) -> None:
    error = TransportError(Fault.PROCESS_EXITED, "It ended.", may_have_run=False, exit_code=2, stderr_tail=tail)
    detail = Diagnosis(Redactor(), "handshake", NPX).failure(error).detail
    assert (words in detail, detail == "It ended.") == (True, not words)
    assert Diagnosis(Redactor(), "handshake").failure(error).detail == "It ended."
    assert Diagnosis(Redactor(), "handshake", NPX, launched=False).failure(error).detail == "It ended."


@pytest.mark.django_db
@pytest.mark.parametrize(("command", "hints"), [("npx", NPX), ("python", ())])
def test_the_hints_of_a_launcher_go_to_the_worker_with_its_launch(
    tmp_path: Path, settings: Any, command: str, hints: Sequence[str]
) -> None:
    settings.DATA_DIR = tmp_path
    assert load(make_session(command=command, arguments=["acme"]).pk).hints == hints
