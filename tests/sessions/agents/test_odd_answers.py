"""Answers to questions that have no form of the protocol, and who is asked none that its revision does not have."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sessions.agents.call_request import answerable
from sessions.agents.calls import questions
from sessions.agents.endpoints import Entry
from sessions.agents.exchange import Exchange
from sessions.enums import QuestionKind
from sessions.inbox.answering import Unfit
from sessions.mcp.core.versions import Era
from tests.servers.conftest import person
from tests.sessions.agents.placed import principal_of


@pytest.mark.parametrize("action", [[], {}, None, 1, "maybe"])
def test_an_answer_whose_action_is_none_is_refused(action: Any) -> None:
    row = cast(Any, SimpleNamespace(kind=QuestionKind.FORM))
    with pytest.raises(Unfit):
        questions._settle(cast(Any, None), row, {"action": action})


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("revision", "modes", "expected"),
    [
        ("2025-11-25", ("form", "url"), {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}}),
        ("2025-06-18", ("form", "url"), {"elicitation": {"form": {}}, "sampling": {}}),
        ("2025-06-18", ("url",), {"sampling": {}}),
        ("2025-03-26", ("form", "url"), {"sampling": {}}),
    ],
)
def test_an_agent_answers_what_its_revision_has_whatever_it_declares(
    revision: str, modes: tuple[str, ...], expected: dict[str, Any]
) -> None:
    """Programs declare all that they know before a revision is agreed on."""
    principal = principal_of(person("ann", "view_server", "call_tool", "answer_question"), "call", "sampling")
    declared = {"elicitation": {mode: {} for mode in modes}, "sampling": {"tools": {}}}
    entry = Entry(principal, cast(Any, None))
    exchange = Exchange(entry, Era.LEGACY, revision, 1, "tools/call", {}, {}, "", "", capabilities=declared)
    assert answerable(exchange) == expected


@pytest.mark.django_db(transaction=True)
def test_an_agent_of_a_person_who_may_not_answer_is_asked_nothing() -> None:
    """Its answer would be refused, and the call would wait for another one."""
    principal = principal_of(person("ann", "view_server", "call_tool"), "call", "sampling")
    declared = {"elicitation": {"form": {}}, "sampling": {}}
    entry = Entry(principal, cast(Any, None))
    exchange = Exchange(entry, Era.LEGACY, "2025-11-25", 1, "tools/call", {}, {}, "", "", capabilities=declared)
    assert answerable(exchange) == {}
