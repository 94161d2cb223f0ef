"""A stream that stays open takes no place among the requests in flight."""

import asyncio
from typing import Any

import pytest

from servers.agents.tokens import principal_of
from servers.models import AgentPolicy
from tests.sessions.agents.door import Door, make_listed, token_of

pytestmark = pytest.mark.django_db(transaction=True)


def token_with_one_in_flight(user: Any) -> str:
    make_listed("files")
    text = token_of(user)
    AgentPolicy.objects.create(token=principal_of(text, "").token, calls_in_flight=1)
    return text


async def test_who_listens_may_ask_as_much_as_before(ada: Any, door: Door) -> None:
    token = await door.thread(token_with_one_in_flight, ada)
    listening = door.modern(token, "files", "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    async with asyncio.timeout(30):
        while b"acknowledged" not in listening.sent:  # noqa: ASYNC110 - it comes when the application has it
            await asyncio.sleep(0.01)
    asked = door.modern(token, "files", "tools/list", id=2)
    assert "result" in await asked.response()
    assert listening.open
    listening.leaves()
    await listening.ends()
