"""Who asked may always take it back; a person whom the policy keeps from approving reads what to do about it."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.agents import policy_changes, tokens
from servers.agents.policies import Rule
from servers.audit import payloads
from servers.audit import writer as writing
from servers.audit.record import Actor
from servers.bundles import changing
from servers.bundles.changing import BundleInput, Membership
from servers.bundles.overrides import Override
from servers.definitions.versions import store_listing
from servers.enums import ActionSource, DefinitionKind, PayloadKind, PolicyEffect, PolicyKind
from servers.models import Definition
from sessions.approvals import deciding, reading, validity
from sessions.approvals.deciding import Decision
from sessions.enums import ApprovalState, CallState
from sessions.models import AgentCall, Approval, Call
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.django_db


def destructive_request(owner: Any, slug: str = "files") -> Approval:
    """By the owner's own agent: the default policy wants another person to approve it."""
    call, now = make_call(make_session(slug)), timezone.now()
    Call.objects.filter(pk=call.pk).update(
        way=ActionSource.AGENT, user=owner, user_name=owner.username, state=CallState.HELD
    )
    AgentCall.objects.create(call=call, token_name="Laptop", same="0")
    times = {"created_at": now, "expires_at": now + timedelta(minutes=5)}
    return Approval.objects.create(call_id=call.pk, same="0", why="It is destructive.", destructive=True, **times)


def page_of(user: Any, approval: Approval) -> str:
    client = Client()
    client.force_login(user)
    return client.get(f"/inbox/approvals/{approval.uid}/").content.decode()


def whole_arguments(user: Any, approval: Approval) -> str:
    """By the link of the page."""
    client = Client()
    client.force_login(user)
    address = f"/inbox/approvals/{approval.uid}/arguments.json"
    assert f'href="{address}"' in page_of(user, approval)
    return client.get(address).content.decode()


def test_the_owner_who_may_not_approve_may_refuse() -> None:
    root = person("root", is_superuser=True)
    approval = destructive_request(root)
    page = page_of(root, approval)
    assert "another person must decide" in page
    assert "Approve this call" not in page
    assert f"/inbox/approvals/{approval.uid}/refuse/" in page


def test_the_title_of_the_tab_asks_only_while_the_request_is_open() -> None:
    root = person("root", is_superuser=True)
    approval = destructive_request(root)
    assert "Approve echo?" in page_of(root, approval).partition("</title>")[0]
    Approval.objects.update(state=ApprovalState.EXPIRED, ended_at=timezone.now())
    assert "Expired: echo" in page_of(root, approval).partition("</title>")[0]


def test_the_list_reads_no_arguments() -> None:
    root = person("root", is_superuser=True)
    destructive_request(root)
    client = Client()
    client.force_login(root)
    with CaptureQueriesContext(connection) as queries:
        assert "It is destructive." in client.get("/inbox/").content.decode()
    assert not [query["sql"] for query in queries if '"servers_payload"."text"' in query["sql"]]


def test_the_list_of_decided_requests_names_who_decided_and_leads_to_older_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "ENDED", 2)
    root, now = person("root", is_superuser=True), timezone.now()
    requests = [destructive_request(root, f"files{number}") for number in range(4)]
    Approval.objects.update(state=ApprovalState.APPROVED, ended_at=now)
    for approval, by in zip(requests, ("olga", "bob", "", "carl"), strict=True):
        Approval.objects.filter(pk=approval.pk).update(ended_by=by)
    long_ago = now - reading.ENDED_SINCE
    Approval.objects.filter(pk=requests[0].pk).update(created_at=long_ago - timedelta(minutes=5), ended_at=long_ago)
    Approval.objects.filter(pk=requests[1].pk).update(created_at=long_ago - timedelta(minutes=5), ended_at=now)
    client = Client()
    client.force_login(root)

    def listed(page: str) -> list[Approval]:
        decided = page[page.index('id="inbox-decided"') :]
        return [approval for approval in requests if str(approval.uid) in decided]

    newest = client.get("/inbox/").content.decode()
    assert listed(newest) == requests[2:]
    assert "Decided by" in newest
    assert "carl" in newest
    (older,) = re.findall(r'href="(\?decided=\d+)"', newest)
    page = client.get(f"/inbox/{older}").content.decode()
    assert listed(page) == [requests[1]], "decided within the days, and requested before them"
    assert "bob" in page
    assert "decided=" not in page[page.index('id="inbox-decided"') :]


def test_the_page_leads_to_the_policy_and_to_inviting_a_person() -> None:
    root = person("root", is_superuser=True)
    page = page_of(root, destructive_request(root))
    assert "/servers/files/agents/" in page
    assert "Token owners can approve" in page
    assert "/users/invite/" in page


def test_who_may_not_manage_users_is_not_led_to_inviting() -> None:
    ann = person("ann", "view_server", "call_tool", "answer_question")
    page = page_of(ann, destructive_request(ann))
    assert "/users/invite/" not in page


def test_another_person_may_do_both() -> None:
    approval = destructive_request(person("ann", "view_server", "call_tool"))
    page = page_of(person("root", is_superuser=True), approval)
    assert "Approve this call" in page
    assert "/refuse/" in page


def test_arguments_that_are_too_long_to_show_are_not_passed_off_as_whole() -> None:
    approval = destructive_request(person("ann", "view_server", "call_tool"))
    text = json.dumps({"note": "x" * reading.ARGUMENT_CHARS, "then": "delete everything"})
    Call.objects.update(arguments=payloads.store(PayloadKind.ARGUMENTS, text))
    root = person("root", is_superuser=True)
    page = page_of(root, approval)
    assert "delete everything" not in page
    assert whole_arguments(root, approval) == text
    assert f"{len(text) - reading.ARGUMENT_CHARS} more characters follow" in page
    Call.objects.update(arguments=payloads.store(PayloadKind.ARGUMENTS, '{"note": "x"}'))
    assert "more characters follow" not in page_of(person("ruth", is_superuser=True), approval)


@pytest.mark.django_db(transaction=True)
def test_a_reason_is_stored_without_what_no_database_stores() -> None:
    root = person("root", is_superuser=True)
    approval = destructive_request(root)
    try:
        assert deciding.refuse(Actor.of_user(root), root, approval, "Not\0 today.") is Decision.DONE
    finally:
        writing.reset()
    assert Call.objects.get().detail == "root refused it: Not\N{REPLACEMENT CHARACTER} today."


def test_only_the_owner_may_refuse_what_they_may_not_approve() -> None:
    owner, other = person("ann", "view_server"), person("bob", "view_server")
    approval = destructive_request(owner)
    assert deciding.may_refuse(owner, approval)
    assert not deciding.may_refuse(other, approval)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("state", "said"),
    [
        (ApprovalState.APPROVED, "Already approved by bob. The call is sent once."),
        (ApprovalState.EXPIRED, "This request was closed before your answer arrived. Nothing was approved."),
    ],
)
def test_who_approves_late_reads_whether_the_call_is_sent(state: ApprovalState, said: str) -> None:
    approval = destructive_request(person("ann", "view_server", "call_tool"))
    Approval.objects.update(state=state, ended_by="bob", ended_at=timezone.now())
    client = Client()
    client.force_login(person("root", is_superuser=True))
    binding = {"binding": validity.binding(Approval.objects.get())}
    try:
        page = client.post(f"/inbox/approvals/{approval.uid}/approve/", binding, follow=True).content.decode()
    finally:
        writing.reset()
    assert said in page
    assert ("Nothing was approved" in page) == ("Nothing was approved" in said)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("what", ["nothing", "the tool", "its parameter", "another", "the name of now"])
def test_a_call_through_a_bundle_is_not_released_once_an_agent_could_not_make_it_there(what: str) -> None:
    ann = person("ann", is_superuser=True)
    session, actor, now = make_session("files"), Actor.of_user(ann), timezone.now()
    schema = {"type": "object", "properties": {"path": {}, "force": {}, "deep": {}}}
    store_listing(session.server, DefinitionKind.TOOL, [{"name": "drop", "inputSchema": schema}], session.state_since)
    bundle = changing.create(actor, ann, BundleInput("Team", [Membership(session.server, "files")], "team"))
    issued = tokens.issue(actor, ann, tokens.NewToken("laptop", 7, ["mcp:list", "mcp:call"]))
    call = make_call(session, "drop", path="a", force=True)
    digest = Definition.objects.get(key="drop").digest
    held = {"way": ActionSource.AGENT, "user": ann, "user_name": "ann", "state": CallState.HELD}
    Call.objects.filter(pk=call.pk).update(**held, definition_digest=digest, identity=session.identity)
    AgentCall.objects.create(call=call, token=issued.token, token_name="laptop", same="0")
    times = {"created_at": now, "expires_at": now + timedelta(minutes=5)}
    row = Approval.objects.create(
        call_id=call.pk, token=issued.token, bundle=bundle, shown="files__drop", same="0", why="x", **times
    )

    def saved(**changed: Any) -> None:
        changing.change(actor, ann, bundle, changing.with_member(bundle, "files", **changed), bundle.version)

    if what == "the tool":
        saved(tools=("*", "!drop"))
    elif what == "its parameter":
        saved(overrides={"drop": Override("", ("force",))})
    elif what == "another":
        saved(tools=("*", "!echo"), overrides={"drop": Override("", ("deep",))})
    elif what == "the name of now":
        wanted = BundleInput("Team", [Membership(session.server, "net")], "team")
        changing.change(actor, ann, bundle, wanted, bundle.version)
        policy_changes.add_rule(actor, ann, bundle, Rule(PolicyEffect.DENY, PolicyKind.TOOL, "net__drop"))
    row = Approval.objects.select_related("call__server", "call__arguments", "token__user", "bundle").get(pk=row.pk)
    assert validity.void_reason(row) == {
        "the tool": "The bundle that the call came through no longer offers drop.",
        "its parameter": "The bundle that the call came through no longer offers the parameter force.",
        "the name of now": "It is now denied. Rule “Deny net__drop” of the bundle Team.",
    }.get(what, "")
