"""Of two streams of a session the newest stays, in whatever order they hear of each other; and what a stream begins to
follow is looked at once, without a hint."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from sessions.agents import changes
from sessions.agents.changes import Changes
from sessions.agents.follows import Followed


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
