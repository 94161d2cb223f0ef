"""What a grant for one endpoint reads of calls and events."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction
from django.utils import timezone

from servers.agents import tokens
from servers.agents.addresses import address_of
from servers.audit import writer
from servers.audit.record import Actor, Event, ServerRef, record
from servers.enums import AuditAction, AuditOutcome, OAuthClientKind
from servers.models import AgentToken, Bundle, BundleMember, OAuthClient, Server
from sessions.api import audit_events, calls
from sessions.api.asking import Caller
from sessions.models import McpSession
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.django_db(transaction=True)


def caller(user: Any, slug: str, *servers: Server) -> Caller:
    """With a grant for this endpoint, which covers these servers."""
    known = {"client_id": "program", "redirect_uris": ["x:y"], "kind": OAuthClientKind.REGISTERED}
    client = OAuthClient.objects.get_or_create(client_id="program", defaults=known)[0]
    grant = AgentToken.objects.create(
        public_id=tokens.new_public_id(),
        digest="0" * 64,
        user=user,
        name="Program",
        client=client,
        resource=address_of(slug),
        scopes=["mcp:history", "mcp:audit"],
        expires_at=timezone.now() + timedelta(days=7),
    )
    grant.servers.set(servers)
    return Caller(tokens.still_valid(grant.pk, ""), "192.0.2.7", "request-0001")


def read(asks: Caller) -> tuple[set[str], set[str | None]]:
    """The servers of the calls and events that it gets."""
    found = calls._page(asks, "", "", 50).items
    assert {calls._visible(asks, one.id).server_name for one in found} == {one.server for one in found}
    return {one.server for one in found}, {one.server for one in audit_events._page(asks, "", 50).items}


def test_a_grant_reads_the_calls_and_events_of_its_server_or_of_the_members_of_its_bundle(valkey: Path) -> None:
    ada = get_user_model().objects.create_superuser("ada", password="x")
    bundle = Bundle.objects.create(slug="team", name="Team")
    servers = {}
    for slug in ("inside", "left", "outside"):
        session: McpSession = make_session(slug)
        servers[slug] = session.server
        make_call(session, text="hi")
        of_server = ServerRef.of(session.server)
        with transaction.atomic():
            record(Event(AuditAction.CALL_REQUEST, AuditOutcome.OK, Actor.of_user(ada), of_server, subject="echo"))
    for slug, retired_at in (("inside", None), ("left", timezone.now())):
        BundleMember.objects.create(bundle=bundle, server=servers[slug], alias=slug, retired_at=retired_at)
    covered = servers["inside"], servers["left"]
    inside, left = ({servers[slug].name} for slug in ("inside", "left"))
    assert read(caller(ada, "team", *covered)) == (inside, inside)
    assert read(caller(ada, "left", servers["left"])) == (left, left)
    Bundle.objects.update(deleted_at=timezone.now())
    assert read(caller(ada, "team", *covered)) == (set(), set())
    writer.reset()
