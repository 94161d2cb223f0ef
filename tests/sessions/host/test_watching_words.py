"""What is kept of why a resource is not watched or could not be read has no secrets in it."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from servers.secret import MASK, Secret
from sessions.host.answer_redaction import Redactor
from sessions.host.subscriptions.watching import Watching
from sessions.mcp.core.errors import Fault, TransportError
from sessions.mcp.core.state import State

SAID = f"hunter2-hunter2 and ghp_{'A' * 36}"
MASKED = f"{MASK} and {MASK}"


class Kept:
    """A database that remembers what was to be written."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    async def persist(self, job: "partial[Any]") -> None:
        self.values += job.args


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def watching(kept: Kept) -> Watching:
    unused: Any = None
    client: Any = SimpleNamespace(state=State.READY)
    database: Any = kept
    return Watching(database, unused, client, Redactor([Secret("hunter2-hunter2")]), unused, unused, lambda: None)


async def test_the_words_of_a_failed_read_are_masked(watching: Watching, kept: Kept) -> None:
    watch: Any = SimpleNamespace(pk=1)
    await watching._failed(watch, "rpc_error", SAID)
    assert MASKED in kept.values


async def test_the_words_of_a_lost_connection_are_masked(watching: Watching) -> None:
    watching.over(TransportError(Fault.CONNECTION_LOST, SAID, may_have_run=False))
    assert watching._over is not None
    assert watching._over[0] == f"Connection lost: {MASKED}"
