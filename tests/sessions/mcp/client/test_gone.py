"""An answerer that is cancelled receives the reason."""

import asyncio
from typing import Any

import pytest

from sessions.mcp.client import InputRequest
from sessions.mcp.core.input_requests import WithdrawalReason
from tests.sessions.mcp.client.answers import ELICIT, FORM, asking, question
from tests.sessions.mcp.transports.making import FlowSecrets, connected

pytestmark = pytest.mark.integration
VISIT = {"mode": "url", "elicitationId": "v-1", "url": "https://a.example/x", "message": "Sign in"}


class Person:
    """Never answers; `why` is the reason of its cancellation."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.why: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self, asked: InputRequest) -> dict[str, Any]:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as gone:
            self.why.set_result(gone.args[0])
            raise
        raise AssertionError("unreachable")


async def asked(made: FlowSecrets, person: Person) -> None:
    await made.client.call_tool("send", {"messages": [question("e", ELICIT, FORM)]})
    await person.began.wait()


async def test_the_server_took_its_question_back() -> None:
    person = Person()
    async with connected(asking(), capabilities=None, answers={ELICIT: person}) as made:
        await asked(made, person)
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": "e"}}
        await made.client.call_tool("send", {"messages": [cancelled]})
        assert await person.why == WithdrawalReason.WITHDRAWN


async def test_who_answers_learns_that_the_connection_is_over() -> None:
    person = Person()
    async with connected(asking(), capabilities=None, answers={ELICIT: person}) as made:
        await asked(made, person)
    assert await person.why == WithdrawalReason.CONNECTION_OVER


async def test_the_connection_is_over_while_a_page_is_visited() -> None:
    person = Person()
    async with connected(asking(), capabilities=None, answers={ELICIT: person}) as made:
        call = asyncio.ensure_future(made.client.call_tool("require", {"elicitations": [VISIT]}))
        await person.began.wait()
    await asyncio.wait({call})
    assert await person.why == WithdrawalReason.CONNECTION_OVER


@pytest.mark.parametrize("told", [True, False], ids=["server says so", "call cancelled"])
async def test_a_visit_is_over_and_a_call_is_over(told: bool) -> None:
    person = Person()
    async with connected(asking(), capabilities=None, answers={ELICIT: person}) as made:
        call = asyncio.ensure_future(made.client.call_tool("require", {"elicitations": [VISIT]}))
        await person.began.wait()
        if told:
            over = {"method": "notifications/elicitation/complete", "params": {"elicitationId": "v-1"}}
            await made.client.call_tool("send", {"messages": [over]})
        else:
            call.cancel()
        await asyncio.wait({call})
        assert await person.why == (WithdrawalReason.VISITED if told else WithdrawalReason.CALL_OVER)
