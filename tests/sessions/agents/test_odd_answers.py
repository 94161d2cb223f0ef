"""Answers to questions that have no form of the protocol."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sessions.agents.calls import questions
from sessions.enums import QuestionKind
from sessions.inbox.answering import Unfit


@pytest.mark.parametrize("action", [[], {}, None, 1, "maybe"])
def test_an_answer_whose_action_is_none_is_refused(action: Any) -> None:
    row = cast(Any, SimpleNamespace(kind=QuestionKind.FORM))
    with pytest.raises(Unfit):
        questions._settle(cast(Any, None), row, {"action": action})
