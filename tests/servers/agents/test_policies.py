"""What a policy says: the strictest rule counts, in any order, and only admins make it more generous."""

import itertools
import json
import re
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from servers import access
from servers.agents import policies, policy_changes
from servers.agents.policies import Policies, Policy, Rule
from servers.audit.record import Actor
from servers.bundles import changing
from servers.definitions.versions import store_listing
from servers.enums import AuditAction, DefinitionKind, OwnApproval, PolicyEffect, PolicyKind
from servers.models import AgentRule, AgentToken, AuditEvent, Bundle
from tests.servers.conftest import person
from tests.sessions.host.make import make_session

ALLOW, ASK, DENY = PolicyEffect.ALLOW, PolicyEffect.ASK, PolicyEffect.DENY
TOOL, RESOURCE = PolicyKind.TOOL, PolicyKind.RESOURCE


def rule(effect: PolicyEffect, pattern: str, kind: PolicyKind = TOOL, **more: Any) -> Rule:
    return Rule(effect, kind, pattern, **more)


def of(*rules: Rule, token: tuple[Rule, ...] = (), **endpoint: Any) -> Policies:
    return Policies(Policy("the endpoint Files", rules=rules, **endpoint), Policy("the token laptop", rules=token))


def effect(known: Policies, key: str, **more: Any) -> PolicyEffect:
    return known.decide(TOOL, key, **more).effect


def test_without_rules_everything_is_allowed_but_a_destructive_tool_without_its_scope_asks() -> None:
    assert effect(of(), "delete") is ALLOW
    assert effect(of(), "delete", destructive=True, scoped=True) is ALLOW
    verdict = of().decide(TOOL, "delete", destructive=True, scoped=False)
    assert (verdict.effect, "mcp:call:destructive" in verdict.why) == (ASK, True)
    assert effect(of(rule(ALLOW, "*")), "delete", destructive=True, scoped=False) is ASK


def test_the_strictest_rule_counts_whatever_the_order_and_owner() -> None:
    rules = (rule(ALLOW, "file_read"), rule(ASK, "file_*"), rule(DENY, "file_d*"))
    for order in itertools.permutations(rules):
        for split in range(4):
            known = of(*order[:split], token=order[split:])
            assert [effect(known, key) for key in ("file_read", "file_delete", "other")] == [ASK, DENY, ALLOW]


def test_a_rule_takes_the_place_of_the_default_of_its_own_policy_only() -> None:
    known = of(rule(ALLOW, "search_*"), otherwise=ASK)
    assert [effect(known, key) for key in ("search_notes", "write")] == [ALLOW, ASK]
    token = Policy("the token laptop", rules=(rule(ALLOW, "write"),))
    assert effect(Policies(known.endpoint, token), "write") is ASK
    assert (
        Policies(known.endpoint, token).decide(TOOL, "write").why
        == "No rule of the endpoint Files matches. Its default is Ask."
    )


def test_patterns_match_whole_names_of_their_kind() -> None:
    known = of(rule(DENY, "file:///etc/*", RESOURCE))
    assert known.denies(RESOURCE, "file:///etc/ssh/key")
    assert not known.denies(RESOURCE, "file:///home")
    assert not known.denies(TOOL, "file:///etc/x")
    assert effect(of(rule(DENY, "Delete")), "delete") is ALLOW
    brackets = of(rule(DENY, "http://[::1]/*", RESOURCE))
    assert brackets.denies(RESOURCE, "http://[::1]/key")
    assert not brackets.denies(RESOURCE, "http://:/key")


def test_a_bundle_can_only_be_stricter_and_means_its_own_names() -> None:
    server, bundle = (
        of(rule(ASK, "write")),
        Policy("the bundle Team", rules=(rule(DENY, "files__r*"), rule(ALLOW, "*"))),
    )
    known = Policies(server.endpoint, server.token, bundle)
    shown = [known.decide(TOOL, key, f"files__{key}").effect for key in ("read", "write", "other")]
    assert shown == [DENY, ASK, ALLOW]
    assert known.decide(TOOL, "read", "files__read").why == "Rule “Deny files__r*” of the bundle Team."
    assert not known.denies(TOOL, "files__read", "wiki__files__read")


def test_the_strictest_answer_counts_to_whether_owners_may_approve_for_themselves() -> None:
    always, never = Policy("a", own_approval=OwnApproval.ALWAYS), Policy("b", own_approval=OwnApproval.NEVER)
    assert policies.own_approval([always, never]) is OwnApproval.NEVER
    assert policies.own_approval([always, Policy("c")]) is OwnApproval.EXCEPT_DESTRUCTIVE


def test_equal_calls_are_counted_only_where_an_endpoint_or_bundle_says_so() -> None:
    assert of().equal_calls is None
    assert of(equal_calls=5).equal_calls == 5
    server = of(equal_calls=5)
    assert Policies(server.endpoint, server.token, Policy("b", equal_calls=3)).equal_calls == 3


def test_what_a_server_says_of_its_tools_can_only_make_it_stricter_unless_it_is_trusted() -> None:
    both = {"annotations": {"destructiveHint": True, "readOnlyHint": True}}
    assert policies.marked_destructive(both, trusted=False)
    assert not policies.marked_destructive(both, trusted=True)
    for silent in ({}, {"annotations": {}}, {"annotations": "x"}, {"annotations": {"destructiveHint": "true"}}):
        assert not policies.marked_destructive(silent, trusted=False)
    assert not policies.marked_harmless(both, trusted=False)
    assert policies.marked_harmless(both, trusted=True)


def test_the_lowest_number_of_calls_counts() -> None:
    known = of(rule(ALLOW, "a*", calls_per_minute=5), rule(ASK, "ab", calls_per_minute=3)).endpoint
    assert [known.calls_per_minute(TOOL, key) for key in ("a", "ab", "b")] == [5, 3, None]


# --- changes and pages -----------------------------------------------------------------------------------------------------
@pytest.fixture
def token(db: None) -> AgentToken:
    ann = person("ann", "view_server", "call_tool")
    return AgentToken.objects.create(
        public_id="a" * 12,
        digest="0" * 64,
        user=ann,
        name="laptop",
        scopes=["mcp:list", "mcp:call"],
        every_server=True,
        expires_at="2100-01-01T00:00Z",
    )


def browser(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.django_db(transaction=True)
def test_each_change_of_a_policy_is_an_event_and_needs_the_permission(token: AgentToken) -> None:
    server = make_session("files").server
    olga = person("olga", "view_server", "change_server")
    actor = Actor.of_user(olga)
    policy_changes.add_rule(actor, olga, server, rule(DENY, "delete_*"))
    with pytest.raises(ValidationError):
        policy_changes.add_rule(actor, olga, server, rule(ASK, "delete_*"))
    policy_changes.change(actor, olga, server, {"otherwise": "ask", "equal_calls": None})
    policy_changes.remove_rule(actor, olga, server, AgentRule.objects.get())
    events = AuditEvent.objects.filter(action=AuditAction.AGENT_POLICY_CHANGE).order_by("seq")
    details = [json.loads(event.body)["details"] for event in events]
    assert details == [
        {"added": "deny tool delete_*"},
        {"otherwise": "allow → ask"},
        {"removed": "deny tool delete_*"},
    ]
    for stranger, owner in ((token.user, server), (olga, token)):
        with pytest.raises(access.Denied):
            policy_changes.add_rule(Actor.of_user(stranger), stranger, owner, rule(ALLOW, "*"))
    assert AgentRule.objects.count() == 0


@pytest.mark.parametrize("of", ["server", "bundle", "token"])
@pytest.mark.django_db(transaction=True)
def test_who_saves_an_older_page_changes_only_what_they_entered(token: AgentToken, of: str) -> None:
    """What another person denied in the meantime stays denied."""
    server = make_session("files").server
    olga = person("olga", "view_server", "change_server")
    bundle = Bundle.objects.create(slug="team", name="Team")
    owner, user, address = {
        "server": (server, olga, "/servers/files/agents/"),
        "bundle": (bundle, olga, "/agents/bundles/team/policy/"),
        "token": (token, token.user, f"/agents/tokens/{token.uid}/policy/"),
    }[of]
    policy_changes.change(Actor.of_user(user), user, owner, {"calls_in_flight": 3})
    client = browser(user)
    page = client.get(address)
    form = page.context["form"]
    older = {
        form[name].html_name: form[name].value() for name in form.fields if form[name].value() not in (None, False)
    }
    older |= {form[name].html_initial_name: "" if (now := form[name].value()) is None else now for name in form.fields}
    assert all(f'name="initial-{name}"' in page.content.decode() for name in form.fields)
    policy_changes.change(Actor.of_user(user), user, owner, {"otherwise": DENY})

    change = page.context["actions"]["change"]
    assert client.post(change, older | {"requests_per_second": "5", "calls_in_flight": ""}).status_code == 302
    known = policies.policy_of(owner)
    assert (known.otherwise, known.requests_per_second, known.calls_in_flight) == (DENY, 5, None)


@pytest.mark.django_db(transaction=True)
def test_who_manages_users_changes_the_policy_of_a_token_only_of_people_without_more_permissions(
    token: AgentToken,
) -> None:
    policy_changes.add_rule(Actor.of_user(token.user), token.user, token, rule(DENY, "delete_*"))
    [guard] = AgentRule.objects.all()
    at = f"/agents/tokens/{token.uid}/policy/"
    posted = {"effect": "allow", "kind": "tool", "pattern": "*", "calls_per_minute": ""}
    mallory, hana = person("mallory", "manage_users"), person("hana", "view_server", "call_tool", "manage_users")
    helper = browser(mallory)
    for path, fields in (
        (f"{at}rules/", posted),
        (f"{at}change/", {"otherwise": "allow"}),
        (f"/agents/rules/{guard.uid}/remove/", {}),
    ):
        assert helper.post(path, fields).status_code == 403, path
    assert list(AgentRule.objects.values_list("pattern", flat=True)) == ["delete_*"]
    denied = AuditEvent.objects.filter(outcome="denied", actor_name="mallory")
    assert denied.count() == 3
    assert "view_server" in json.loads(denied[0].body)["details"]["lacking"]
    for manager, shown in ((mallory, False), (hana, True)):
        page = browser(manager).get(at)
        assert page.status_code == 200
        assert ("Remove the rule" in page.content.decode()) is shown
    assert browser(hana).post(f"{at}rules/", posted).status_code == 302
    AgentToken.objects.update(user=get_user_model().objects.create_superuser("root"))
    assert browser(hana).post(f"{at}rules/", posted | {"pattern": "b"}).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_removing_a_rule_asks_first_and_says_which_one_went(token: AgentToken) -> None:
    policy_changes.add_rule(Actor.of_user(token.user), token.user, token, rule(DENY, "delete_*"))
    [guard] = AgentRule.objects.all()
    at, client = f"/agents/rules/{guard.uid}/remove/", browser(token.user)
    assert f'href="{at}"' in client.get(f"/agents/tokens/{token.uid}/policy/").content.decode()
    asked = client.get(at).content.decode()
    assert "Agents will be able to use what only this rule denies" in asked
    assert AgentRule.objects.get() == guard
    assert "The rule “Deny delete_*” was removed." in client.post(at, follow=True).content.decode()
    assert not AgentRule.objects.exists()
    assert browser(person("vera", "view_server")).get(at).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_the_policy_of_a_bundle_is_changed_by_those_who_may_change_servers(token: AgentToken) -> None:
    session = make_session("files")
    tool = {"name": "wipe", "inputSchema": {"type": "object"}}
    store_listing(session.server, DefinitionKind.TOOL, [tool], timezone.now())
    maker = person("olga", "view_server", "change_server")
    wanted = changing.BundleInput("Team", [changing.Membership(session.server, "files")], "team")
    changing.create(Actor.of_user(maker), maker, wanted)
    olga, vera = browser(maker), browser(person("vera", "view_server"))
    posted = {"effect": "ask", "kind": "tool", "pattern": "files__w*", "calls_per_minute": ""}
    assert olga.post("/agents/bundles/team/policy/rules/", posted).status_code == 302
    assert vera.post("/agents/bundles/team/policy/rules/", posted).status_code == 403
    for reader in (olga, vera):
        assert "Rule “Ask files__w*” of the bundle Team." in reader.get("/agents/bundles/team/policy/").content.decode()
    event = AuditEvent.objects.get(action=AuditAction.AGENT_POLICY_CHANGE)
    assert json.loads(event.body)["details"]["added"] == "ask tool files__w*"


@pytest.mark.django_db(transaction=True)
def test_the_pages_show_rules_and_which_of_them_decides_for_each_tool(token: AgentToken) -> None:
    session = make_session("files")
    names = [("read", {}), ("wipe", {"destructiveHint": True})]
    tools = [{"name": name, "annotations": hints, "inputSchema": {"type": "object"}} for name, hints in names]
    store_listing(session.server, DefinitionKind.TOOL, tools, timezone.now())
    olga = browser(person("olga", "view_server", "change_server"))
    posted = {"effect": "deny", "kind": "tool", "pattern": "read", "calls_per_minute": "7"}
    assert olga.post("/servers/files/agents/rules/", posted).status_code == 302
    assert olga.post("/servers/files/agents/rules/", posted | {"pattern": ""}).status_code == 422
    page = olga.get("/servers/files/agents/").content.decode()
    assert "Rule “Deny read” of the endpoint Files." in page
    mine = browser(token.user).get(f"/agents/tokens/{token.uid}/policy/?server=files").content.decode()
    assert "mcp:call:destructive" in mine
    assert browser(person("vera", "view_server")).get(f"/agents/tokens/{token.uid}/policy/").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_what_a_token_was_made_without_is_shown_as_denied_and_other_tokens_are_not_offered(token: AgentToken) -> None:
    session = make_session("files")
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("read", "wipe")]
    store_listing(session.server, DefinitionKind.TOOL, tools, timezone.now())
    store_listing(session.server, DefinitionKind.PROMPT, [{"name": "hello"}], timezone.now())
    AgentToken.objects.update(tools=["read*"])
    mine = browser(token.user)
    page = mine.get(f"/servers/files/agents/?token={token.uid}").content.decode()
    rows = [re.sub(r"<[^>]+>|\s+", " ", row) for row in page.split("<tr>")]
    found = {name: next(row for row in rows if f" {name} " in row) for name in ("read", "wipe", "hello")}
    assert "Allow" in found["read"]
    assert "The token does not include this tool." in found["wipe"]
    assert "The token does not have the scope mcp:read." in found["hello"]
    AgentToken.objects.update(every_server=False)
    assert f'value="{token.uid}"' not in mine.get("/servers/files/agents/").content.decode()
