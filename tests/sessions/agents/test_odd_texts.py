"""Texts that PostgreSQL cannot hold, or not in an index: agents and strangers send them where something is looked up."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import connection
from pydantic import ValidationError

from servers.agents.addresses import slug_of
from servers.agents.oauth import clients
from servers.audit import writer
from servers.bundles import exposed
from servers.enums import DefinitionKind
from servers.models import Bundle, BundleMember
from sessions.agents import agent_sessions, endpoints, follows
from sessions.agents.call_request import call_request_of
from sessions.agents.calls import idempotency
from sessions.agents.catalog import bundles
from sessions.agents.endpoints import Entry, NoEndpoint
from sessions.agents.exchange import Exchange
from sessions.api import servers
from sessions.api.asking import Caller
from sessions.api.shapes import SubscriptionIn
from sessions.mcp.core.jsonrpc import Request
from sessions.mcp.core.versions import Era
from sessions.mcp.server.legacy import Opening
from sessions.mcp.server.refusals import Refusal
from sessions.models import AgentSession
from tests.servers.conftest import on_postgres, person  # noqa: F401  a fixture
from tests.sessions.agents.door import make_listed
from tests.sessions.agents.placed import principal_of
from tests.sessions.agents.test_earlier_calls import called
from tests.sessions.host.make import make_session

NUL = "a\0b"


@pytest.fixture(autouse=True)
def _on_postgres(on_postgres: None) -> Iterator[None]:  # noqa: F811  the fixture by its name
    yield
    writer.reset()


@pytest.fixture
def entry() -> Entry:
    """At a bundle of one server."""
    session = make_listed("files")
    bundle = Bundle.objects.create(slug="team", name="Team")
    every: Any = {"tools": ["*"], "resources": ["*"], "prompts": ["*"]}
    BundleMember.objects.create(bundle=bundle, server=session.server, alias="files", **every)
    principal = principal_of(person("ann", "view_server", "call_tool", "manage_subscription"))
    return Entry(principal, endpoints.endpoint_of(principal, "team"))


def opened(entry: Entry, **capabilities: Any) -> AgentSession:
    opening = Opening(Request(1, "initialize", {}), "2025-11-25", capabilities, {})
    return agent_sessions.open_session(entry, opening)


def test_a_nul_is_refused_wherever_something_is_looked_up(entry: Entry) -> None:
    alone = replace(entry, place=endpoints.endpoint_of(entry.principal, "files"))
    with pytest.raises(NoEndpoint):
        endpoints.endpoint_of(entry.principal, NUL)
    reference = {"ref": {"type": "ref/resource", "uri": f"note://files.mcp/{NUL}"}, "argument": {"name": "a"}}
    for method, params in (
        ("tools/call", {"name": NUL}),
        ("prompts/get", {"name": NUL}),
        ("resources/read", {"uri": f"note://files.mcp/{NUL}"}),
        ("resources/subscribe", {"uri": f"note://files.mcp/{NUL}"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": NUL}, "argument": {"name": "a"}}),
        ("completion/complete", reference),
    ):
        exchange = partial(Exchange, era=Era.MODERN, revision="2026-07-28", id=1, method=method, params=params)
        of_bundle = exchange(entry=entry, headers={}, address="", request_id="")
        with pytest.raises(Refusal) as refused:
            bundles.routed(of_bundle)
        assert refused.value.code == -32602
        if method != "resources/subscribe":
            with pytest.raises(Refusal) as refused:
                call_request_of(replace(of_bundle, entry=alone))
            assert refused.value.code == -32602
    with pytest.raises(Refusal):
        follows.follow(of_bundle.actor, alone, f"note://{NUL}")
    assert exposed.find(entry.place.bundle.pk, DefinitionKind.TOOL, NUL) is None  # type: ignore[union-attr]  # the entry is of a bundle
    assert clients.usable(NUL) is None
    assert not clients.is_document_url(f"https://program.example/{NUL}")
    assert slug_of(f"http://localhost:8000/mcp/{NUL}") == ""
    with pytest.raises(ValidationError):
        SubscriptionIn(server="files", uri=NUL)


def test_a_session_keeps_only_what_questions_need_of_the_capabilities(entry: Entry) -> None:
    odd = {NUL: {NUL: NUL}, "experimental": {"x": NUL}}
    declared = {"elicitation": {"form": odd, **odd}, "sampling": {"tools": odd, **odd}, "roots": odd, **odd}
    kept = {"elicitation": {"form": {}}, "sampling": {"tools": {}}, "roots": {}}
    for found, expected in ((declared, kept), ({"elicitation": {}}, {"elicitation": {"form": {}}}), ({}, {})):
        session = opened(entry, **found)
        session.refresh_from_db()
        assert session.capabilities == expected


def test_the_longest_id_of_a_request_is_known_again_but_its_stream_is_not_resumed(entry: Entry) -> None:
    session = opened(entry)
    letters = random.Random(1).choices([chr(code) for code in range(0x4E00, 0x9FFF)], k=1_024)
    for identity, resumes in (("".join(letters), False), ("é" * 30, True), (7, True)):
        row = called(entry.principal.token.pk, session=session, request_id=idempotency.stored_id(identity))
        assert idempotency.call_of_request(session.pk, identity) == row.call.uid
        assert idempotency.is_short(identity) is resumes
        found = idempotency.call_of_event(session.pk, f"{row.call.uid}:0")
        assert (found is not None and found[1].id == identity) is resumes


def test_servers_come_in_the_same_order_in_every_language_of_the_database(entry: Entry) -> None:
    slugs = ["a-b", "a-c", "a0", "aa", "ab"]
    for slug in slugs:
        make_session(slug)
    with connection.cursor() as cursor:
        cursor.execute("CREATE COLLATION words (provider = icu, locale = 'en-u-ka-shifted')")  # as glibc: no hyphens
        for table in ("servers_server", "servers_bundle"):
            cursor.execute(f"ALTER TABLE {table} ALTER COLUMN slug TYPE varchar(64) COLLATE words")
    caller, found, cursor_ = Caller(entry.principal, "", ""), list[str](), ""
    while True:
        page = servers._page(caller, cursor_, 1)
        found += [row.slug for row in page.items]
        if page.next is None:
            break
        cursor_ = page.next
    assert found == [*slugs, "files", "team"]
