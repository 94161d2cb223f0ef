"""Hand-written SQL for a call's own row: building the statements with the ORM is most of what a call costs.

One text for SQLite and PostgreSQL, but for a lock that only the latter needs. Each change names the previous state, and
on the worker's side owner and epoch. It returns the row's new version, or None if another process was faster.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, cast
from uuid import UUID

from django.utils import timezone

from servers.enums import DefinitionKind
from servers.models import AgentToken, Definition, Payload, Server
from servers.sql import Columns, Fields, Insert, database, fetch, fetch_one, param, tables
from sessions.connections.lifecycle import Lease
from sessions.enums import CallState, Desired
from sessions.models import AgentCall, AgentRound, Approval, Attempt, Call, LogLine, McpSession

_TABLES = tables(AgentCall, AgentRound, AgentToken, Approval, Call, Definition, LogLine, McpSession, Payload, Server)
insert_attempt = Insert(Attempt)
insert_call = Insert(Call)


def _version(sql: str, values: Sequence[Any]) -> int | None:
    found = fetch(sql, values)
    return int(found[0][0]) if found else None


# --- what a card shows -----------------------------------------------------------------------------------------------
LINES_LOOKED_AT = 200
_LINE = Columns(LogLine, "line", ("id", "at", "level", "text"))


def _lines_of(columns: str, log: str, uid: str) -> str:
    """`log`: the condition for a log, with a placeholder for the table's name. Reads a limited part of an index."""
    return (
        f"SELECT {columns} FROM {LogLine._meta.db_table} line WHERE {log.format('line')} AND line.call_uid = {uid} "  # noqa: S608  # names of our own models, no input
        f"AND line.seq > (SELECT COALESCE(MAX(newest.seq), 0) FROM {LogLine._meta.db_table} newest "
        f"WHERE {log.format('newest')}) - {LINES_LOOKED_AT}"
    )


_SHOWN_CALL = Columns(Call, "one")
_RELATED: dict[str, Columns[Any]] = {
    "server": Columns(Server, "server", ("id", "uid", "name", "slug")),
    "session": Columns(McpSession, "session", ("id", "owner_id", "revision")),
    "result": Columns(Payload, "result"),
    "late_result": Columns(Payload, "late_result"),
    "agent": Columns(AgentCall, "agent", ("id", "token_name", "program")),
}
_SHOWN = """
SELECT {columns}, CASE WHEN one.personal THEN EXISTS ({personal}) ELSE EXISTS ({shared}) END FROM {Call} one
LEFT JOIN {Server} server ON server.id = one.server_id
LEFT JOIN {McpSession} session ON session.id = one.session_id
LEFT JOIN {Payload} result ON result.id = one.result_id
LEFT JOIN {Payload} late_result ON late_result.id = one.late_result_id
LEFT JOIN {AgentCall} agent ON agent.call_id = one.id
WHERE one.uid IN ({{marks}})
""".format(
    columns=", ".join(part.sql for part in (_SHOWN_CALL, *_RELATED.values())),
    personal=_lines_of("1", "{0}.identity_id = one.identity_id", "one.uid"),
    shared=_lines_of("1", "{0}.server_id = one.server_id AND {0}.identity_id IS NULL", "one.uid"),
    **_TABLES,
)


def shown(uids: Iterable[UUID]) -> list[Call]:
    """Calls with what their cards show, in one query. Columns of related rows that no card shows are deferred."""
    values = [param(Call, "uid", uid) for uid in uids]
    if not values:
        return []
    return [_shown(row) for row in fetch(_SHOWN.format(marks=", ".join(["%s"] * len(values))), values)]


def _shown(row: Sequence[Any]) -> Call:
    call = cast("Call", _SHOWN_CALL.read(row[: _SHOWN_CALL.count]))  # the other tables are joined to it
    start = _SHOWN_CALL.count
    for name, columns in _RELATED.items():
        call._state.fields_cache[name] = columns.read(row[start : start + columns.count])  # as select_related does
        start += columns.count
    call.has_lines = bool(row[start])
    return call


_HEARD_CALL = Columns(
    Call,
    "one",
    (
        *("id", "uid", "state", "method", "target", "server_name", "open_questions", "sent_at", "cancel_requested_by"),
        *("fault", "detail", "may_have_run", "error_code", "error_message", "error_data"),
        *("progress", "progress_total", "progress_message"),
    ),
)
_CONTENT = Columns(Payload, "result", ("id", "uid", "text", "blob", "sealed", "key_id", "erased_at"))
_HEARD = (
    f"SELECT {_HEARD_CALL.sql}, {_CONTENT.sql} FROM {_TABLES['Call']} one "  # noqa: S608  # the same
    f"LEFT JOIN {_TABLES['Payload']} result ON result.id = one.result_id WHERE one.uid IN ({{marks}})"
)


def heard(uids: Sequence[UUID]) -> list[Call]:
    """Calls with what their agents get to see of them, in one query. Everything else is deferred."""
    found, values = [], [param(Call, "uid", uid) for uid in uids]
    for row in fetch(_HEARD.format(marks=", ".join(["%s"] * len(values))), values):
        call = cast("Call", _HEARD_CALL.read(row[: _HEARD_CALL.count]))
        call.result = _CONTENT.read(row[_HEARD_CALL.count :])
        found.append(call)
    return found


_SHARED_LINES = _lines_of(_LINE.sql, "{0}.server_id = %s AND {0}.identity_id IS NULL", "%s") + " ORDER BY line.seq"
_PERSONAL_LINES = _lines_of(_LINE.sql, "{0}.identity_id = %s", "%s") + " ORDER BY line.seq"


def lines(call: Call) -> list[LogLine]:
    """The log lines of a call among the newest LINES_LOOKED_AT of its session's log."""
    if call.has_lines is False:
        return []
    log_id = call.identity_id if call.personal else call.server_id
    values = [log_id, param(LogLine, "call_uid", call.uid), log_id]
    return [
        line
        for row in fetch(_PERSONAL_LINES if call.personal else _SHARED_LINES, values)
        if (line := _LINE.read(row)) is not None
    ]


# --- placing -----------------------------------------------------------------------------------------------------------
# PostgreSQL takes this lock for the foreign key anyway, but only at the commit. Taken here, it waits for a worker that is
# just closing the session (lifecycle.close_when_idle), and that worker waits for it.
_DESIRED = """,
(SELECT session.desired FROM {McpSession} session WHERE session.id = {Call}.session_id{{lock}})
""".format(**_TABLES)  # noqa: S608  # the same
_DESIREDS = {"sqlite": _DESIRED.format(lock=""), "postgresql": _DESIRED.format(lock=" FOR KEY SHARE")}


def place(call: Call, values: list[Any]) -> bool:
    """Write the row of a new call. Returns whether its session is closed now: it may have been closed since the call was
    checked. A worker does not close it before the commit."""
    (desired,) = insert_call.write_returning(call, values, _DESIREDS[database().vendor])
    return bool(desired == Desired.CLOSED)


# --- the worker's side -------------------------------------------------------------------------------------------------
_ORDER = Columns(Call, "one", ("id", "session_id", "method", "target", "user_id", "user_name", "way", "as_task"))
_ARGUMENTS = Columns(Payload, "arguments")
_WAITING = """
SELECT {columns}, (
    SELECT tool.body FROM {Definition} tool
    WHERE tool.identity_id = one.identity_id AND tool.kind = %s AND tool.key = one.target
)
FROM {Call} one JOIN {Payload} arguments ON arguments.id = one.arguments_id
WHERE one.uid = %s AND one.state = %s AND one.deadline > %s
""".format(columns=f"{_ORDER.sql}, {_ARGUMENTS.sql}", **_TABLES)  # noqa: S608  # the same


def waiting(uid: UUID) -> tuple[Call, Payload, str] | None:
    """A call that waits to be sent, its arguments and the definition of its tool (empty if the tool is not listed)."""
    now = param(Call, "deadline", timezone.now())
    found = fetch(_WAITING, [DefinitionKind.TOOL.value, param(Call, "uid", uid), CallState.REQUESTED.value, now])
    if not found:
        return None
    call, arguments = _ORDER.read(found[0]), _ARGUMENTS.read(found[0][_ORDER.count :])
    return (call, arguments, found[0][-1] or "") if call is not None and arguments is not None else None


@dataclass(frozen=True, slots=True)
class CallPreconditions:
    """What an agent's call depends on. `ended`: its token is no longer valid. `asked`: a person approved it.
    `made_with`: the digest of the definition that it was made with, empty for none. `approved_digest`: see
    Definition."""

    ended: bool
    asked: bool
    server_name: str
    target: str
    made_with: str
    digest: str | None
    approved_digest: str


_AGENT = Columns(AgentCall, "agent", ("id", "capabilities", "log_level", "asks_people", "one_exchange"))
_ROUND = Columns(AgentRound, "round")
_AGENT_CALL = """
SELECT {columns}, token.id IS NULL OR token.revoked_at IS NOT NULL OR token.expires_at <= %s, approval.id IS NOT NULL,
       one.server_name, one.target, one.definition_digest, definition.digest, definition.approved_digest
FROM {AgentCall} agent JOIN {Call} one ON one.id = agent.call_id
LEFT JOIN {AgentRound} round ON round.call_id = agent.call_id AND NOT round.back
LEFT JOIN {AgentToken} token ON token.id = agent.token_id
LEFT JOIN {Approval} approval ON approval.call_id = one.id
LEFT JOIN {Definition} definition ON definition.identity_id = one.identity_id AND definition.kind = %s
     AND definition.key = %s AND definition.removed_at IS NULL
WHERE agent.call_id = %s
""".format(columns=f"{_AGENT.sql}, {_ROUND.sql}", **_TABLES)  # the same


def agent_call(
    call_pk: int, kind: DefinitionKind, key: str
) -> tuple[AgentCall, AgentRound | None, CallPreconditions] | None:
    """An agent's call besides its row: the agent's answers that are sent with it, and what it depends on now. `kind`
    and `key`: those of its target's definition."""
    now = param(AgentToken, "expires_at", timezone.now())
    row = fetch_one(_AGENT_CALL, [now, kind.value, key, call_pk])
    agent = _AGENT.read(row[: _AGENT.count]) if row is not None else None
    if agent is None:
        return None
    ended, asked, server, target, made_with, digest, approved = row[_AGENT.count + _ROUND.count :]
    standing = CallPreconditions(bool(ended), bool(asked), server, target, made_with, digest, approved or "")
    return agent, _ROUND.read(row[_AGENT.count : _AGENT.count + _ROUND.count]), standing


# Not a join: with a joined subquery PostgreSQL would not check the row's state again after waiting for its lock.
_CLAIM = """
UPDATE {Call} SET state = %s, sent_at = %s, epoch = %s, worker_uid = %s, version = version + 1
WHERE id = %s AND state = %s AND deadline > %s AND EXISTS (
    SELECT 1 FROM {McpSession} session
    WHERE session.id = {Call}.session_id AND session.owner_id = %s AND session.epoch = %s{{lock}}
)
RETURNING version
""".format(**_TABLES)  # noqa: S608  # the same
_CLAIMS = {"sqlite": _CLAIM.format(lock=""), "postgresql": _CLAIM.format(lock=" FOR SHARE")}


def claim(pk: int, lease: Lease, now: datetime) -> int | None:
    """From requested to sent, if the deadline has not passed and the session is ours. It stays ours until the commit: a
    process that is suspended in between would otherwise send under an old epoch. SQLite has only one writer anyway.
    """
    at, worker = param(Call, "sent_at", now), param(Call, "worker_uid", lease.worker_uid)
    after = [CallState.SENT.value, at, lease.epoch, worker]
    before = [pk, CallState.REQUESTED.value, at, lease.worker_id, lease.epoch]
    return _version(_CLAIMS[database().vendor], after + before)


_FINISH = """
UPDATE {Call} SET {{changes}}, version = version + 1
WHERE id = %s AND state = %s AND worker_uid = %s AND epoch = %s
RETURNING version
""".format(**_TABLES)  # the same


def finish(pk: int, lease: Lease, fields: Mapping[str, Any]) -> int | None:
    """From sent, by us at this epoch, to the state in `fields`."""
    sql, columns = _finish_of(tuple(fields))
    before = [pk, CallState.SENT.value, param(Call, "worker_uid", lease.worker_uid), lease.epoch]
    return _version(sql, columns.of_columns(fields) + before)


@cache
def _finish_of(names: tuple[str, ...]) -> tuple[str, Fields]:
    fields: list[Any] = [Call._meta.get_field(name) for name in names]
    return _FINISH.format(changes=", ".join(f'"{field.column}" = %s' for field in fields)), Fields(fields)


# --- calls of agents that may have run ---------------------------------------------------------------------------------
#: of each state, as many of the newest calls are looked at
_NEWEST = 10_000
_UNSURE = """
SELECT 1 FROM (
    SELECT id, state, may_have_run, finished_at FROM {Call} WHERE state = %s ORDER BY id DESC LIMIT {newest}
) one JOIN {AgentCall} agent ON agent.call_id = one.id
WHERE +agent.token_id = %s AND agent.same = %s AND one.finished_at > %s AND (one.may_have_run OR one.state = '{unknown}')
LIMIT 1
""".format(newest=_NEWEST, unknown=CallState.OUTCOME_UNKNOWN.value, **_TABLES)  # noqa: S608  # names of our own models


def may_have_run(token: int, same: str, since: datetime) -> bool:
    """Whether it is unknown what an identical call did that ended since then, whether or not its agent was told."""
    states = (CallState.OUTCOME_UNKNOWN, CallState.CANCELLED, CallState.FAILED)
    ended = param(Call, "finished_at", since)
    return any(fetch_one(_UNSURE, [state.value, token, same, ended]) is not None for state in states)
