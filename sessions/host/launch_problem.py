"""Why a registration cannot be opened."""

from sessions.connections.lifecycle import Failure
from sessions.mcp.core.errors import Fault


class LaunchProblem(Exception):
    """The registration cannot be opened as it is; a person has to change something."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


def not_started(words: str) -> LaunchProblem:
    return LaunchProblem(Failure(Fault.SPAWN_FAILED, words, step="connect"))
