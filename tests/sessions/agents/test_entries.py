"""What an agent's request needs to know about its server and session is read once in a few seconds, and again as soon as a
hint says that it changed."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from servers.agents.tokens import NewToken, issue
from servers.audit.record import Actor
from servers.enums import SignsInAs
from servers.models import Server
from sessions import hints
from sessions.agents import endpoints, recent
from sessions.agents.recent import Recent
from sessions.models import AgentSession
from tests.sessions.agents.door import Door, make_listed, token_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The slug of each endpoint that is read."""
    found: list[str] = []
    real = endpoints.entry_of

    def read(principal: Any, slug: str, key: str) -> Any:
        found.append(slug)
        return real(principal, slug, key)

    monkeypatch.setattr(endpoints, "entry_of", read)
    return found


async def listed(door: Door, token: str, key: str = "") -> int:
    """The status of a list, in either era."""
    asked = door.legacy(token, "files", key, "tools/list") if key else door.modern(token, "files", "tools/list")
    await asked.ends()
    return asked.status


async def test_requests_that_follow_each_other_read_their_endpoint_once(door: Door, ada: Any, reads: list[str]) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    assert [await listed(door, token) for _ in range(3)] == [200, 200, 200]
    assert reads == ["files"]
    key = await door.session(token, "files")
    reads.clear()
    assert [await listed(door, token, key) for _ in range(3)] == [200, 200, 200]
    assert reads == ["files"]


async def test_without_a_hint_it_is_read_again_after_seconds(
    door: Door, ada: Any, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "KNOWN_SECONDS", 0.0)
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    assert [await listed(door, token) for _ in range(2)] == [200, 200]
    assert reads == ["files", "files"]


@pytest.mark.parametrize("told", [lambda door: door.hint(hints.SERVERS), lambda door: door.hub._recheck_watchers()])
async def test_a_server_that_is_archived_is_gone_with_the_hint(
    door: Door, ada: Any, told: Callable[[Door], None]
) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    assert await listed(door, token) == 200
    await door.thread(lambda: Server.objects.update(archived_at=timezone.now()))
    told(door)
    assert await listed(door, token) == 404


async def test_a_session_that_its_agent_ended_takes_no_further_request(door: Door, ada: Any) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    key = await door.session(token, "files")
    assert await listed(door, token, key) == 200
    await door._sent("DELETE", token, "files", b"", {"mcp_session_id": key}).ends()
    assert await listed(door, token, key) == 404


async def test_a_session_that_ended_in_another_process_ends_here_with_the_hint(door: Door, ada: Any) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    key = await door.session(token, "files")
    assert await listed(door, token, key) == 200
    await door.thread(lambda: AgentSession.objects.update(ended_at=timezone.now()))
    door.hint(hints.AGENT_SESSIONS)
    assert await listed(door, token, key) == 404


async def test_a_log_level_counts_from_the_next_request_on(door: Door, ada: Any) -> None:
    def with_logging() -> None:
        session = make_listed("files")
        session.server_capabilities |= {"logging": {}}
        session.save()

    await door.thread(with_logging)
    token = await door.thread(token_of, ada)
    key = await door.session(token, "files")
    assert await listed(door, token, key) == 200
    await door.legacy(token, "files", key, "logging/setLevel", {"level": "debug"}).ends()
    calling = door.legacy(token, "files", key, "tools/call", {"name": "echo", "arguments": {}})
    call = await door.viewed()
    level = await door.thread(lambda: AgentSession.objects.get().calls.get(call__uid=call).log_level)
    assert level == "debug"
    await door.finish(call)
    door.hint(f"call.{call}")
    await calling.ends()


async def test_what_is_remembered_opens_nothing_to_another_token(door: Door, ada: Any) -> None:
    def tokens() -> tuple[str, str, str]:
        elsewhere = Server.objects.filter(slug="other")
        narrow = NewToken("narrow", 7, ["mcp:list"], elsewhere)
        return token_of(ada), token_of(ada), issue(Actor.of_user(ada), ada, narrow).text

    await door.thread(make_listed, "files")
    await door.thread(make_listed, "other")
    mine, another, narrow = await door.thread(tokens)
    key = await door.session(mine, "files")
    assert await listed(door, mine, key) == 200
    assert await listed(door, another) == 200
    assert await listed(door, another, key) == 404, "the session of another token"
    assert await listed(door, narrow) == 404, "a server that this token does not reach"


async def test_a_server_with_an_identity_for_each_person_is_read_for_each_request(
    door: Door, ada: Any, reads: list[str]
) -> None:
    def own() -> None:
        make_listed("files")
        Server.objects.update(signs_in_as=SignsInAs.EITHER)

    await door.thread(own)
    token = await door.thread(token_of, ada)
    for _ in range(2):
        asked = door.modern(token, "files", "ping")
        await asked.ends()
    assert reads == ["files", "files"]


def test_what_was_read_before_a_change_is_not_kept_after_it() -> None:
    memory: Recent[str, int] = Recent()
    before = memory.generation
    memory.forget()
    memory.keep("one", 1, before)
    assert memory.get("one") is None
    memory.keep("one", 2, memory.generation)
    assert memory.get("one") == 2


def test_what_is_kept_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "_MOST", 2)
    memory: Recent[int, int] = Recent()
    for number in (1, 2, 1, 3):
        memory.keep(number, number, 0)
    assert [memory.get(number) for number in (1, 2, 3)] == [1, None, 3]
