"""A consent counts for one call and nothing else: eight ways to use it for more, on both databases, and a tool that
changes between list and call. What would reach the server is an attempt."""

import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from servers.agents import policy_changes, tokens
from servers.agents.policies import Rule
from servers.agents.tokens import Principal
from servers.audit.record import Actor
from servers.audit.writer import writer
from servers.bundles import changing
from servers.bundles.changing import Membership
from servers.definitions.versions import store_listing
from servers.enums import AuditAction, DefinitionKind, PolicyEffect, PolicyKind
from servers.models import AgentToken, AuditEvent, Bundle
from sessions.agents import endpoints
from sessions.agents.calls import idempotency
from sessions.agents.catalog import lists
from sessions.agents.endpoints import Entry
from sessions.agents.policy import policy_check
from sessions.agents.policy.policy_check import Forbidden, PolicyCheck
from sessions.approvals import deciding, ending, validity
from sessions.approvals.deciding import Decision
from sessions.calls import claims
from sessions.connections.lifecycle import Lease
from sessions.enums import ApprovalState, CallState
from sessions.housekeeping import due_calls
from sessions.mcp.core.versions import Era
from sessions.models import AgentCall, Approval, Attempt, Call, McpSession
from tests.servers.conftest import on_postgres, person  # noqa: F401  a fixture
from tests.sessions.agents import placed as placed_calls
from tests.sessions.agents.placed import place, principal_of
from tests.sessions.host.make import make_hold, make_session

LISTED = {"name": "wipe", "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}}}
OTHERWISE = LISTED | {"description": "Wipes all."}


def breaking(number: int) -> dict[str, Any]:
    """Another one for each number."""
    return LISTED | {"inputSchema": {"type": "object", "required": [f"x{number}"]}}


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.django_db(transaction=True)), "postgresql"])
def database(request: pytest.FixtureRequest) -> None:
    if request.param == "postgresql":
        request.getfixturevalue("on_postgres")


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    policy_check.memory.forget()


@dataclass
class World:
    """Two servers with a tool of the same name that asks; agents of `ann`; `boss` may approve."""

    ann: Any
    boss: Any
    sessions: dict[str, McpSession]
    leases: dict[str, Lease]
    check: PolicyCheck = field(default_factory=PolicyCheck)

    def principal(self) -> Principal:
        return principal_of(self.ann)

    def place(self, principal: Principal, slug: str, name: str = "wipe", /, **arguments: Any) -> Call:
        return place(self.check, principal, slug, name, "", **arguments)

    def decide(self, call: Call) -> Decision:
        row = Approval.objects.select_related("call__server", "call__arguments", "token", "bundle").get(call=call)
        return deciding.approve(Actor.of_user(self.boss), self.boss, row, validity.binding(row))

    def send(self, call: Call) -> bool:
        """As the worker that holds the session does."""
        lease = next(one for one in self.leases.values() if one.session_id == call.session_id)
        take = partial(claims.take, call.uid, lease)
        taken = writer().submit_and_wait(take, lambda found: found.events if found is not None else [])
        return taken is not None and taken.call is not None


@pytest.fixture
def world(database: None) -> World:
    sessions = {slug: make_session(slug) for slug in ("files", "notes")}
    boss = person("boss", "view_server", "change_server", "answer_question")
    made = World(
        person("ann", "view_server", "call_tool"),
        boss,
        sessions,
        {slug: make_hold(session) for slug, session in sessions.items()},
    )
    for session in sessions.values():
        offer(session, LISTED)
        rule = Rule(PolicyEffect.ASK, PolicyKind.TOOL, "wipe")
        policy_changes.add_rule(Actor.of_user(boss), boss, session.server, rule)
    return made


def offer(session: McpSession, *tools: dict[str, Any]) -> None:
    store_listing(session.server, DefinitionKind.TOOL, list(tools), timezone.now())


def state_of(call: Call) -> str:
    return Call.objects.values_list("state", flat=True).get(pk=call.pk)


def approval_of(call: Call) -> str:
    return Approval.objects.values_list("state", flat=True).get(call=call)


def at_once(work: Callable[[], Any], times: int = 6) -> Counter[Any]:
    """What each of several threads got, which begin together."""
    barrier, found = threading.Barrier(times), []

    def run() -> None:
        barrier.wait()
        try:
            found.append(work())
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return Counter(found)


class OwnTransactions:
    """In place of this process's one writer."""

    def submit_and_wait(self, work: Callable[[], Any], *_: Any) -> Any:
        with transaction.atomic():
            return work()


def test_a_yes_sends_the_call_that_was_shown(world: World) -> None:
    call = world.place(world.principal(), "files", id="a")
    assert (state_of(call), world.send(call)) == (CallState.HELD, False)
    assert world.decide(call) is Decision.DONE
    assert world.send(call)
    assert Attempt.objects.count() == 1


# --- eight ways ------------------------------------------------------------------------------------------------------------
def test_1_other_arguments_need_a_consent_of_their_own(world: World) -> None:
    principal = world.principal()
    first, other = (world.place(principal, "files", id=name) for name in ("a", "b"))
    assert world.decide(first) is Decision.DONE
    assert not world.send(other)
    assert (approval_of(other), Attempt.objects.count()) == (ApprovalState.OPEN, 0)


def test_2_another_token_of_the_same_person_needs_a_consent_of_its_own(world: World) -> None:
    first, other = (world.place(world.principal(), "files", id="a") for _ in range(2))
    assert first.pk != other.pk
    assert world.decide(first) is Decision.DONE
    assert not world.send(other)
    assert (approval_of(other), Attempt.objects.count()) == (ApprovalState.OPEN, 0)


def test_3_a_consent_is_used_up_by_its_call(world: World) -> None:
    principal = world.principal()
    call = world.place(principal, "files", id="a")
    assert world.decide(call) is Decision.DONE
    with pytest.raises(idempotency.SameRequest):  # its outcome has not been delivered yet
        world.place(principal, "files", id="a")
    assert world.send(call)
    assert not world.send(call)
    assert world.decide(call) is Decision.LATE
    idempotency.mark_approval_delivered(call.uid)
    again = world.place(principal, "files", id="a")
    assert (world.send(again), approval_of(again)) == (False, ApprovalState.OPEN)
    assert Attempt.objects.count() == 1


def test_4_an_expired_request_cannot_be_approved(world: World) -> None:
    call = world.place(world.principal(), "files", id="a")
    Approval.objects.update(expires_at=timezone.now())
    assert world.decide(call) is Decision.LATE
    assert not world.send(call)
    ending.expire_without_worker()
    writer().submit_and_wait(lambda: None)
    assert (state_of(call), approval_of(call)) == (CallState.EXPIRED, ApprovalState.EXPIRED)
    assert (world.decide(call), world.send(call)) == (Decision.LATE, False)


def test_4_the_tick_of_a_worker_ends_it_where_no_page_is_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[Any] = []
    monkeypatch.setattr("sessions.hints.approval_changed", lambda *uids: announced.append(uids))
    call = world.place(world.principal(), "files", id="a")
    announced.clear()
    Approval.objects.update(expires_at=timezone.now())
    assert writer().submit_and_wait(due_calls.expire, list)
    assert (state_of(call), approval_of(call)) == (CallState.EXPIRED, ApprovalState.EXPIRED)
    actions = list(AuditEvent.objects.filter(call_uid=call.uid).order_by("seq").values_list("action", flat=True))
    assert actions[-2:] == [AuditAction.APPROVAL_EXPIRE, AuditAction.CALL_FINISH]
    assert announced == [(Approval.objects.get(call=call).uid, call.uid)]
    assert writer().submit_and_wait(due_calls.expire, list) == []


@pytest.mark.parametrize("when", ["before the yes", "after it"])
@pytest.mark.parametrize("how", ["revoked_at", "expires_at"])
def test_5_a_token_that_counts_no_more_sends_nothing(world: World, how: str, when: str) -> None:
    call = world.place(world.principal(), "files", id="a")
    if when == "after it":
        assert world.decide(call) is Decision.DONE
    AgentToken.objects.update(**{how: timezone.now()})
    if when == "before the yes":
        assert world.decide(call) is Decision.VOID
    assert not world.send(call)
    assert (state_of(call), approval_of(call)) == (CallState.REFUSED, ApprovalState.VOIDED)
    assert Attempt.objects.count() == 0


def test_5_revoking_a_token_ends_what_waits_for_it(world: World) -> None:
    principal = world.principal()
    call = world.place(principal, "files", id="a")
    assert tokens.revoke(Actor.of_user(world.ann), world.ann, principal.token)
    writer().submit_and_wait(lambda: None)
    assert (state_of(call), approval_of(call)) == (CallState.REFUSED, ApprovalState.VOIDED)
    assert (world.decide(call), world.send(call)) == (Decision.LATE, False)


@pytest.mark.parametrize("when", ["before the yes", "after it"])
@pytest.mark.parametrize("tool", [OTHERWISE, breaking(1), None], ids=["words", "breaking", "gone"])
def test_6_a_consent_is_void_once_the_definition_differs(world: World, tool: dict[str, Any] | None, when: str) -> None:
    call = world.place(world.principal(), "files", id="a")
    if when == "after it":
        assert world.decide(call) is Decision.DONE
    offer(world.sessions["files"], *([tool] if tool else []))
    if when == "before the yes":
        assert world.decide(call) is Decision.VOID
    assert not world.send(call)
    assert (state_of(call), approval_of(call)) == (CallState.REFUSED, ApprovalState.VOIDED)
    assert Attempt.objects.count() == 0


def test_a_consent_is_not_spent_while_the_session_is_paused(world: World) -> None:
    call = world.place(world.principal(), "files", id="a")
    McpSession.objects.update(paused=True)
    assert world.decide(call) is Decision.PAUSED
    assert (state_of(call), approval_of(call)) == (CallState.HELD, ApprovalState.OPEN)
    McpSession.objects.update(paused=False)
    assert world.decide(call) is Decision.DONE
    assert world.send(call)


def test_a_consent_is_void_once_the_session_of_its_call_is_gone(world: World) -> None:
    call = world.place(world.principal(), "files", id="a")
    Call.objects.update(session=None)
    assert world.decide(call) is Decision.VOID
    assert (state_of(call), approval_of(call)) == (CallState.REFUSED, ApprovalState.VOIDED)


def test_7_the_tool_of_that_name_of_another_member_needs_a_consent_of_its_own(world: World) -> None:
    team(world)
    principal = world.principal()
    first, other = (world.place(principal, "team", f"{alias}__wipe", id="a") for alias in ("files", "notes"))
    assert world.decide(first) is Decision.DONE
    assert not world.send(other)
    assert (approval_of(other), Attempt.objects.count()) == (ApprovalState.OPEN, 0)


def test_8_of_two_uses_at_once_one_is_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread has its own transaction, like separate web processes and workers."""
    principal = world.principal()
    for module in (deciding, placed_calls, sys.modules[__name__]):
        monkeypatch.setattr(module, "writer", OwnTransactions)

    def placed() -> str:
        try:
            return str(world.place(principal, "files", id="a").uid)
        except idempotency.SameRequest as same:
            return str(same.call)

    (uid,) = at_once(placed)
    call = Call.objects.get(uid=uid)
    assert AgentCall.objects.count() == 1
    assert at_once(lambda: world.decide(call)) == {Decision.DONE: 1, Decision.LATE: 5}
    assert at_once(lambda: world.send(call)) == {True: 1, False: 5}
    assert Attempt.objects.count() == 1


# --- bundles -----------------------------------------------------------------------------------------------------------------
def team(world: World) -> Bundle:
    members = [Membership(session.server, slug) for slug, session in world.sessions.items()]
    return changing.create(Actor.of_user(world.boss), world.boss, changing.BundleInput("Team", members, "team"))


def rule_of(world: World, bundle: Bundle, effect: PolicyEffect, pattern: str) -> None:
    rule = Rule(effect, PolicyKind.TOOL, pattern)
    policy_changes.add_rule(Actor.of_user(world.boss), world.boss, bundle, rule)
    policy_check.memory.forget()


def test_a_rule_of_the_bundle_closes_what_the_servers_allow_and_opens_nothing(world: World) -> None:
    bundle, principal = team(world), world.principal()
    offer(world.sessions["files"], LISTED, {"name": "read", "inputSchema": {"type": "object"}})
    rule_of(world, bundle, PolicyEffect.ALLOW, "*")
    assert state_of(world.place(principal, "team", "files__wipe", id="a")) == CallState.HELD
    rule_of(world, bundle, PolicyEffect.DENY, "files__r*")
    with pytest.raises(Forbidden, match=r"Rule “Deny .* of the bundle Team"):
        world.place(principal, "team", "files__read")
    assert state_of(world.place(principal, "files", "read")) == CallState.REQUESTED


def test_lists_leave_out_what_a_rule_denies_or_no_person_has_seen(world: World) -> None:
    bundle, principal = team(world), world.principal()
    read = {"name": "read", "inputSchema": {"type": "object"}}
    offer(world.sessions["files"], LISTED, read)
    known = {
        "revision": "2025-11-25",
        "server_capabilities": {"tools": {}},
        "catalog_counts": {"tool": {"read_at": "2026-01-01"}},
    }
    McpSession.objects.update(**known)

    def listed(slug: str) -> list[str]:
        entry = Entry(principal, endpoints.endpoint_of(principal, slug))
        found = json.loads(lists.page(entry, "tools/list", {}, Era.LEGACY))
        return [tool["name"] for tool in found["tools"]]

    def fingerprint() -> str:
        return lists.fingerprints(Entry(principal, endpoints.endpoint_of(principal, "team")))["tools"]

    assert listed("team") == ["files__wipe", "files__read", "notes__wipe"]
    before = fingerprint()
    rule_of(world, bundle, PolicyEffect.DENY, "files__r*")
    assert listed("team") == ["files__wipe", "notes__wipe"]
    assert fingerprint() != before
    assert listed("files") == ["wipe", "read"]
    offer(world.sessions["files"], breaking(1), read)
    assert listed("team") == ["notes__wipe"]
    assert listed("files") == ["read"]


@pytest.mark.parametrize("change", ["denied", "left", "deleted"])
def test_what_a_bundle_no_longer_offers_cannot_be_approved(world: World, change: str) -> None:
    bundle = team(world)
    call = world.place(world.principal(), "team", "files__wipe", id="a")
    if change == "denied":
        rule_of(world, bundle, PolicyEffect.DENY, "files__*")
    elif change == "left":
        bundle.members.filter(alias="files").update(retired_at=timezone.now())
    else:
        Bundle.objects.update(deleted_at=timezone.now())
    assert world.decide(call) is Decision.VOID
    assert (world.send(call), Attempt.objects.count()) == (False, 0)


# --- changed definitions -------------------------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("tries", [50, pytest.param(500, marks=pytest.mark.long)])
def test_of_many_tools_that_break_between_list_and_call_none_is_called(tries: int) -> None:
    """Before the request arrives, or after it was written and before a worker takes it."""
    dice, session = random.Random(15), make_session("files")
    world = World(person("ann", "view_server", "call_tool"), None, {}, {"files": make_hold(session)})
    principal, refused = world.principal(), Counter[str]()
    for number in range(tries):
        offer(session, LISTED)
        if dice.random() < 0.5:
            offer(session, breaking(number))
            with pytest.raises(Forbidden, match="approved the change"):
                world.place(principal, "files", id=str(number))
            refused["at the door"] += 1
        else:
            call = world.place(principal, "files", id=str(number))
            offer(session, breaking(number))
            assert not world.send(call)
            refused["by the worker"] += 1
    assert Attempt.objects.count() == 0
    assert min(refused.values()) > tries * 0.3
    offer(session, LISTED)
    assert world.send(world.place(principal, "files", id="last"))
