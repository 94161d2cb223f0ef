"""The earlier calls that an agent's new call may repeat, and those that still run. One statement each, written by hand:
they run in the transaction of every call, while all other writers wait, and building them with the ORM would take longer
than everything else there."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, cast

from servers.sql import Columns, fetch, param, tables
from sessions.enums import CallState
from sessions.models import AgentAttachment, AgentCall, Approval, Call

CONTINUES, REQUEST, ATTACHED, UNHEARD = "continues", "request", "attached", "unheard"
KEY, ATTACHED_KEY = "key", "attached key"
_CALL: Final = Columns(
    Call, "one", ("id", "uid", "state", "created_at", "sent_at", "cancel_requested_at", "may_have_run")
)
_TABLES: Final = tables(AgentAttachment, AgentCall, Approval, Call)
#: the last condition of the keys and of `unheard` matches that of its index
_WHERE: Final = {
    CONTINUES: "agent.continues_id = %s",
    REQUEST: "agent.session_id = %s AND agent.request_id = %s",
    ATTACHED: f"agent.id IN (SELECT call_id FROM {_TABLES['AgentAttachment']} WHERE session_id = %s AND request_id = %s)",  # noqa: S608  # names of our own models
    KEY: "agent.token_id = %s AND agent.key = %s AND NOT (agent.key = '')",
    ATTACHED_KEY: f"agent.id IN (SELECT call_id FROM {_TABLES['AgentAttachment']} WHERE token_id = %s AND key = %s AND NOT (key = ''))",  # noqa: S608  # names of our own models
    UNHEARD: "agent.token_id = %s AND agent.same = %s AND one.created_at > %s AND agent.unheard_at IS NOT NULL",
}

#: The states are part of the text: with parameters, PostgreSQL could not tell how few calls are running. The plus keeps
#: SQLite from reading all calls that the user ever made.
_RUNNING: Final = """
SELECT agent.token_id, COUNT(*) FROM {Call} one JOIN {AgentCall} agent ON agent.call_id = one.id
WHERE one.state IN ('{requested}', '{sent}') AND +one.user_id = %s GROUP BY agent.token_id
""".format(requested=CallState.REQUESTED.value, sent=CallState.SENT.value, **_TABLES)


@dataclass(frozen=True)
class EarlierCall:
    """`why`: what it has in common with the new call. `same`: as in AgentCall."""

    why: str
    same: str
    needed_approval: bool
    call: Call


def earlier_calls(row: dict[str, Any], since: datetime) -> list[EarlierCall]:
    """Return the earlier calls, newest first. `row`: the columns of the new AgentCall. `since`: the oldest calls to
    consider among those whose outcome did not reach the agent."""
    wanted: list[tuple[str, Sequence[Any]]] = [
        (UNHEARD, (row["token_id"], row["same"], param(Call, "created_at", since)))
    ]
    if row["continues_id"] is not None:
        wanted.append((CONTINUES, (row["continues_id"],)))
    if row["session_id"] is not None:
        wanted += [(why, (row["session_id"], row["request_id"])) for why in (REQUEST, ATTACHED)]
    if row["key"]:
        wanted += [(why, (row["token_id"], row["key"])) for why in (KEY, ATTACHED_KEY)]
    rows = fetch(_sql(tuple(why for why, _ in wanted)), [value for _, values in wanted for value in values])
    found = [
        EarlierCall(why, same, approval is not None, cast("Call", _CALL.read(call)))
        for why, same, approval, *call in rows
    ]
    return sorted(found, key=lambda one: one.call.pk, reverse=True)


def running_calls(user: int) -> dict[int | None, int]:
    """How many calls of this user's agents are running, by the key of their token; None: of a token that was deleted."""
    return dict(fetch(_RUNNING, [user]))


@cache
def _sql(whys: tuple[str, ...]) -> str:
    parts = [
        f"SELECT '{why}', agent.same, approval.id, {_CALL.sql} FROM {_TABLES['AgentCall']} agent "  # noqa: S608  # names of our own models
        f"JOIN {_TABLES['Call']} one ON one.id = agent.call_id "
        f"LEFT JOIN {_TABLES['Approval']} approval ON approval.call_id = one.id WHERE {_WHERE[why]}"
        for why in whys
    ]
    return " UNION ALL ".join(parts)
