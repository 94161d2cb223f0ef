"""Of two streams of a session the newest stays, in whatever order they hear of each other."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sessions.agents import changes
from sessions.agents.changes import Changes


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
