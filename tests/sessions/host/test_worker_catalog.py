"""A real worker follows a server's lists: it reads each alone, compares and audits changes, and keeps a list when
reading fails."""

import sys
from pathlib import Path
from typing import Any

import pytest

from servers.audit.record import SYSTEM
from servers.enums import AuditAction, DefinitionKind
from servers.models import AuditEvent
from sessions.catalog.reading import reading
from sessions.connections import commands
from sessions.models import Call, LogLine, McpSession
from tests.sessions.host.conftest import ShareWorker
from tests.sessions.host.harness import Effects, await_ready, ended, eventually, wake
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.integration
SHELF = Path(__file__).with_name("shelf_server.py")
OBJECT: dict[str, Any] = {"type": "object"}
PUT = {"name": "put", "inputSchema": OBJECT}
#: forty times faster, except for the worker's heartbeat
HASTE = {
    "MCPADMIN_TIME_SCALE": "0.025",
    "MCPADMIN_HEARTBEAT_SECONDS": "16",
    "MCPADMIN_STALE_SECONDS": "120",
    "MCPADMIN_RECONNECT_CEILING_SECONDS": "40",
}


def shelf(effects: Effects, slug: str = "shelf", **environment: str) -> McpSession:
    environment["EFFECT_LOG"] = str(effects.path)
    session = make_session(slug, command=sys.executable, arguments=[str(SHELF)], environment=environment)
    await_ready(session)
    eventually(lambda: row(session).catalog_read_at, words="the lists were never read")
    return row(session)


def row(session: McpSession) -> McpSession:
    return McpSession.objects.select_related("server", "identity").get(pk=session.pk)


def put(session: McpSession, **given: Any) -> Call:
    call = make_call(session, "put", **given)
    wake(call)
    return ended(call)


def tools(session: McpSession) -> list[str]:
    rows = session.server.definitions.filter(kind=DefinitionKind.TOOL, removed_at=None)
    return list(rows.values_list("key", flat=True))


def changes() -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(action=AuditAction.CATALOG_CHANGE).order_by("seq"))


def read_since(session: McpSession, before: McpSession) -> Any:
    return eventually(lambda: row(session).catalog_read_at != before.catalog_read_at and row(session), 30)


def test_a_list_that_changed_is_read_alone_judged_and_audited(share_worker: ShareWorker, effects: Effects) -> None:
    share_worker()
    session = shelf(effects)
    assert changes() == []
    assert reading(session, [DefinitionKind.TOOL]).words == "Loaded"
    before = effects.lines()
    needed = {"name": "put", "inputSchema": OBJECT | {"properties": {"x": {}}, "required": ["x"]}}
    put(session, tools=[needed, {"name": "new", "inputSchema": OBJECT}], tell=["tools"])
    again = read_since(session, session)
    assert effects.lines()[len(before) :] == ["list tools/list"]
    assert tools(session) == ["put", "new"]
    assert reading(again, [DefinitionKind.TOOL]).words == "1 added, 1 changed, 1 removed · checked"
    assert reading(again, [DefinitionKind.RESOURCE]).words == "Loaded"
    event = changes()[0]
    assert event.subject == "Tools: 1 added, 1 changed, 1 removed"
    assert '"added":["new"],"breaking":["put"],"changed":["put"],"kind":"tool","removed":["count"]' in event.body
    version = session.server.definitions.get(key="put").versions.first()
    assert (version.change, version.reasons) == ("breaking", ["Argument “x” was added and is required."])


def test_changed_resources_are_read_with_their_templates_and_no_tools(
    share_worker: ShareWorker, effects: Effects
) -> None:
    share_worker()
    session = shelf(effects)
    before = len(effects.lines())
    put(session, resources=[], tell=["resources"])
    read_since(session, session)
    assert effects.lines()[before:] == ["list resources/list", "list resources/templates/list"]
    assert changes()[0].subject == "Resources: 0 added, 0 changed, 1 removed"
    assert session.server.definitions.get(key="shelf:///a").removed_at is not None


def test_the_last_progress_of_a_call_is_kept_when_it_has_ended(share_worker: ShareWorker, effects: Effects) -> None:
    """Progress arrives faster than it is saved."""
    share_worker()
    session = shelf(effects)
    call = make_call(session, "count", to=2)
    wake(call)
    over = ended(call)
    assert (over.progress, over.progress_total, over.progress_message) == (2.0, 2.0, "step 2")


def test_a_list_that_cannot_be_read_stays_as_it_was_and_says_so(share_worker: ShareWorker, effects: Effects) -> None:
    share_worker()
    session = shelf(effects)
    put(session, tools=[], broken=["tools"], tell=["tools"])
    failed = eventually(lambda: row(session) if row(session).catalog_counts["tool"].get("problem") else None)
    assert tools(session) == ["put", "count"]
    told = reading(failed, [DefinitionKind.TOOL])
    assert (told.words, told.read_at) == ("Loaded", reading(session, [DefinitionKind.TOOL]).read_at)
    (problem,) = told.problems
    kind, why, since = problem.what, problem.explanation.cause, problem.since
    assert kind == "tools"
    assert "the shelf fell down" in why
    assert since > told.read_at
    assert changes() == []
    commands.refresh(SYSTEM, failed)
    eventually(lambda: effects.count("list tools/list") >= 3)
    put(session, tools=[PUT], tell=["tools"])
    eventually(lambda: not row(session).catalog_counts["tool"].get("problem"), words="it never recovered")


def test_a_list_that_grows_stale_is_read_again_and_no_other(share_worker: ShareWorker, effects: Effects) -> None:
    share_worker(**HASTE)
    session = shelf(effects, ERA="modern", TTL_MS="100")
    assert session.era == "modern", session.decided_by
    eventually(lambda: row(session).catalog_stale_at, words="its hint was never noted")
    eventually(lambda: effects.count("list tools/list") >= 4, words="it was never refreshed")
    assert effects.count("list resources/list") == 1
    assert tools(session) == ["put", "count"]


def test_a_list_without_a_hint_is_never_stale(share_worker: ShareWorker, effects: Effects) -> None:
    share_worker(**HASTE)
    session = shelf(effects, ERA="modern")
    assert session.catalog_stale_at is None


def test_what_a_server_logs_during_a_call_belongs_to_the_call(share_worker: ShareWorker, effects: Effects) -> None:
    share_worker()
    session = shelf(effects)
    call = put(session, say="careful")
    line = eventually(LogLine.objects.filter(server=session.server, text="careful").first)
    assert (line.call_uid, line.level, line.source) == (call.uid, "warning", "server")
