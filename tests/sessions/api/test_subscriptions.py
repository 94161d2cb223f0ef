"""Subscriptions of the HTTP API obey the rules for resources, as those over MCP do."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction

from servers.agents import tokens
from servers.agents.tokens import NewToken
from servers.audit import payloads, writer
from servers.audit.record import Actor
from servers.enums import AuditAction, PolicyEffect, PolicyKind
from servers.models import AgentPolicy, AgentRule, AuditEvent
from sessions.api import subscriptions
from sessions.api.asking import Caller
from sessions.api.shapes import SubscriptionIn
from sessions.mcp.server.refusals import Refusal
from sessions.models import McpSession, ResourceVersion, Subscription
from sessions.subscriptions.versions import erased
from tests.servers.conftest import person
from tests.sessions.host.make import make_session
from tests.sessions.subscriptions.rows import add_version, make_subscription

pytestmark = pytest.mark.django_db(transaction=True)
SECRET, PLAIN = "file:///etc/key", "file:///home/notes"
#: whose policy has it, its words, and the rule; none: all is denied that no rule allows
RULES: list[tuple[str, str, dict[str, Any]]] = [
    (owner, words, rule)
    for owner in ("server", "token")
    for words, rule in (
        ("Rule “Deny file:///etc/*”", {"effect": PolicyEffect.DENY}),
        ("Rule “Ask file:///etc/*”", {"effect": PolicyEffect.ASK}),
        ("Its default is Deny.", {}),
    )
]


@pytest.fixture
def ada(valkey: Path) -> Iterator[Any]:
    yield get_user_model().objects.create_superuser("ada", password="x")
    writer.reset()


def worlds(user: Any) -> Iterator[tuple[Caller, McpSession, str]]:
    """Of each rule a server of its own, its caller, and the words of the rule."""
    for number, (owner, words, rule) in enumerate(RULES):
        session = make_session(f"files-{number}")
        issued = tokens.issue(Actor.of_user(user), user, NewToken("laptop", 7, ["mcp:read"]))
        of: dict[str, Any] = {"server": session.server} if owner == "server" else {"token": issued.token}
        policy = AgentPolicy.objects.create(**of, otherwise=PolicyEffect.ALLOW if rule else PolicyEffect.DENY)
        given = {"pattern": "file:///etc/*", **rule} if rule else {"pattern": PLAIN, "effect": PolicyEffect.ALLOW}
        AgentRule.objects.create(policy=policy, kind=PolicyKind.RESOURCE, **given)
        yield Caller(tokens.principal_of(issued.text, ""), "192.0.2.7", "request-0001"), session, words


def stored(session: McpSession, uri: str) -> Subscription:
    row = make_subscription(session, uri)
    add_version(row, "secret")
    return row


def test_a_resource_that_a_rule_closes_cannot_be_subscribed_to(ada: Any) -> None:
    for caller, session, words in worlds(ada):
        with pytest.raises(Refusal, match=re.escape(words)) as refused:
            subscriptions._create(caller, SubscriptionIn(server=session.server.slug, uri=SECRET))
        assert (refused.value.status, refused.value.data) == (403, {"reason": "policy"})
        assert subscriptions._create(caller, SubscriptionIn(server=session.server.slug, uri=PLAIN)).uri == PLAIN
    assert {row.uri for row in Subscription.objects.all()} == {PLAIN}


def test_the_versions_of_a_resource_that_a_rule_closes_cannot_be_read(ada: Any) -> None:
    for caller, session, words in worlds(ada):
        with pytest.raises(Refusal, match=re.escape(words)) as refused:
            subscriptions._contents(caller, stored(session, SECRET).uid, 1)
        assert (refused.value.status, refused.value.data) == (403, {"reason": "policy"})
        assert subscriptions._contents(caller, stored(session, PLAIN).uid, 1).contents


def test_the_list_of_versions_of_a_resource_that_a_rule_closes_is_refused(ada: Any) -> None:
    for caller, session, words in worlds(ada):
        with pytest.raises(Refusal, match=re.escape(words)) as refused:
            subscriptions._versions(caller, stored(session, SECRET).uid, "", 50)
        assert (refused.value.status, refused.value.data) == (403, {"reason": "policy"})
        assert len(subscriptions._versions(caller, stored(session, PLAIN).uid, "", 50).items) == 1


def test_what_a_rule_refuses_is_recorded_once_a_minute(ada: Any) -> None:
    for caller, session, words in worlds(ada):
        row = stored(session, SECRET)
        asked = [
            partial(subscriptions._versions, caller, row.uid, "", 50),
            partial(subscriptions._contents, caller, row.uid, 1),
            partial(subscriptions._create, caller, SubscriptionIn(server=session.server.slug, uri=SECRET)),
        ]
        for refused in asked * 2:
            with pytest.raises(Refusal):
                refused()
        events = AuditEvent.objects.filter(action=AuditAction.PERMISSION_DENY, server_uid=session.server.uid)
        bodies = [json.loads(event.body) for event in events]
        assert {(event.outcome, event.actor_name, event.subject) for event in events} == {("denied", "ada", SECRET)}
        assert sorted(body["details"]["method"] for body in bodies) == ["resources/read", "resources/subscribe"]
        assert {body["details"]["token"] for body in bodies} == {str(caller.principal.token.uid)}
        assert all(words in body["details"]["reason"] for body in bodies)


def test_the_digest_of_a_version_is_only_for_those_who_may_read_its_contents(ada: Any) -> None:
    carla = person("carla", "view_server", "call_tool")
    subscription = stored(make_session("files"), PLAIN)

    assert _digests(ada, subscription) == [ResourceVersion.objects.get().digest]
    assert _digests(carla, subscription) == [None]


def test_an_erased_version_has_no_digest(ada: Any) -> None:
    subscription = stored(make_session("files"), PLAIN)
    item = add_version(subscription, "new")
    with transaction.atomic():
        payloads.erase(item.contents)
        erased([item.contents_id])
    older = ResourceVersion.objects.get(number=1)

    assert _digests(ada, subscription) == [None, older.digest]
    assert subscriptions._contents(_caller(ada), subscription.uid, item.number).digest is None


def _digests(user: Any, subscription: Subscription) -> list[str | None]:
    return [row.digest for row in subscriptions._versions(_caller(user), subscription.uid, "", 50).items]


def _caller(user: Any) -> Caller:
    issued = tokens.issue(Actor.of_user(user), user, NewToken("laptop", 7, ["mcp:read"]))
    return Caller(tokens.principal_of(issued.text, ""), "192.0.2.7", "request-0001")
