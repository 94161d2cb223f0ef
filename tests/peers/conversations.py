"""Tools that make a peer talk back: log messages, change notifications, sampling, elicitation.

Complements toolbox.py and is shared by all Python SDKs. Runs in the peers' environments, so it imports nothing of ours.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

CLOCK = "peer://clock"
STYLES = ("formal", "friendly", "long", "short")
NOTES = ("birthdays", "bread", "books")
QUESTION = "Which city do you mean?"
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class City(BaseModel):
    """The form that `ask_person` shows."""

    city: str = Field(description="A city", min_length=1)
    visits: int = Field(default=1, ge=0, description="How often you were there")


@dataclass(frozen=True)
class Talk:
    """The differences between the SDKs. A member that an SDK or a way of serving lacks is None; its tool is missing.

    `ask_model` and `ask_person` are whole tool functions, because the SDKs differ in how a tool gets its answers.
    """

    context: type
    log: Callable[[Any, str, str], Awaitable[None]] | None = None
    updated: Callable[[Any, str], Awaitable[None]] | None = None
    ask_model: Callable[..., Any] | None = None
    ask_person: Callable[..., Any] | None = None


def install_conversations(server: Any, talk: Talk) -> None:
    if talk.log is not None:
        _log_tool(server, talk, talk.log)
    if talk.updated is not None:
        _touch_tool(server, talk, talk.updated)
    if talk.ask_model is not None:
        server.tool(name="ask_model", title="Ask the model", description="Sample the client's model.")(talk.ask_model)
    if talk.ask_person is not None:
        server.tool(name="ask_person", title="Ask the person", description="Elicit a city.")(talk.ask_person)


def _log_tool(server: Any, talk: Talk, log: Callable[[Any, str, str], Awaitable[None]]) -> None:
    @server.tool(name="log", title="Log")
    async def say_in_the_log(ctx: talk.context, text: str, level: str = "warning") -> str:
        """Send one log message to the client."""
        await log(ctx, level, text)
        return f"logged at {level}"


def _touch_tool(server: Any, talk: Talk, updated: Callable[[Any, str], Awaitable[None]]) -> None:
    @server.tool(name="touch", title="Touch")
    async def announce_a_change(ctx: talk.context, uri: str = CLOCK) -> str:
        """Tell all who follow the resource that it changed."""
        await updated(ctx, uri)
        return f"touched {uri}"


def completions(argument: str, typed: str) -> list[str]:
    """The completions for an argument of the prompt `summarise` or of the template `note`."""
    known = {"style": STYLES, "name": NOTES}.get(argument, ())
    return [value for value in known if value.startswith(typed)]
