"""Of two streams of a session the newest stays, in whatever order they hear of each other; and what a stream begins to
follow is looked at once, without a hint."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from sessions.agents import changes
from sessions.agents.changes import Changes
from sessions.agents.follows import Followed
from tests.sessions.agents.door import Asked, Door, make_listed, token_of


def test_what_an_older_stream_said_ends_no_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[list[dict[str, Any]]] = []
    monkeypatch.setattr(changes.hints, "publish", lambda topic, key, kind, rows: said.append(rows))
    connection = cast(Any, SimpleNamespace(on_close=lambda call: None))
    older, newer = (Changes(*[cast(Any, None)] * 4, connection, granted=frozenset(), stands=True) for _ in range(2))
    newer.opened = older.opened + 0.001
    for stream in (older, newer):
        changes.take_over(stream.stream, stream)
    for stream in (older, newer):
        for rows in reversed(said):
            stream._on_session({"rows": rows})
    assert (older._replaced, newer._replaced) == (True, False)


def test_what_a_stream_begins_to_follow_is_read_once_because_it_may_have_changed_before_it_was_watched() -> None:
    hub = cast(Any, SimpleNamespace(watch=lambda topic, watcher: lambda: None))
    connection = cast(Any, SimpleNamespace(on_close=lambda call: None))
    stream = Changes(hub, *[cast(Any, None)] * 3, connection, granted=frozenset())
    followed = Followed(uuid4(), "note://one", events=3, newest=1)
    stream.add(followed)
    assert stream._follows_dirty == {followed.subscription}
    stream._follows_dirty.clear()
    stream.add(followed)
    assert stream._follows_dirty == set(), "it is followed already"


@pytest.mark.django_db(transaction=True)
async def test_a_stream_that_replaces_one_takes_its_place_though_the_token_has_no_other(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(session: UUID, stream: Changes) -> None:
        rows = [{"stream": str(stream.stream), "opened": stream.opened}]
        door.hub._received({"t": f"agent.{session}", "seq": None, "kind": "stream", "rows": rows})

    monkeypatch.setattr(changes, "take_over", told)
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    keys = [await door.session(token, "files") for _ in range(5)]

    async def stands(key: str) -> Asked:
        stream = door.get(token, "files", key)
        async with asyncio.timeout(30):
            while not stream.status:  # noqa: ASYNC110 - the application answers it
                await asyncio.sleep(0.01)
        return stream

    first, *others = [await stands(key) for key in keys[:4]]
    newest = await stands(keys[0])
    assert (newest.status, newest.open) == (200, True)
    await first.ends()
    assert (await stands(keys[4])).status == 429
    for stream in (newest, *others):
        stream.leaves()
        await stream.ends()
