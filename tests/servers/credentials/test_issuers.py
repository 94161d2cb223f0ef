"""An admin chooses which issuer to expect at a server; the choice is bound to the server's current address."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client

from servers.access import Denied
from servers.audit.record import Actor
from servers.credentials import grants, issuers
from servers.credentials.issuers import Expected
from servers.enums import AuditAction
from servers.models import AuditEvent, Identity, Server
from servers.registration import registering
from servers.signals import server_changed
from tests.servers.cast import over_http, over_stdio
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
NAMED, ISSUER = "https://login.example.com/", "https://login.example.com"


@pytest.fixture
def server(admin: Any, actor: Actor) -> Server:
    return registering.register(actor, admin, over_http())


def test_a_choice_is_kept_beside_what_the_server_asks_for_and_written_down(
    admin: Any, actor: Actor, server: Server, django_capture_on_commit_callbacks: Any
) -> None:
    told: list[bool] = []

    def hear(reconnect: bool, **_: Any) -> None:
        told.append(reconnect)

    server_changed.connect(hear)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            issuers.expect(actor, admin, server, NAMED, ISSUER)
    finally:
        server_changed.disconnect(hear)
    assert told == [True]
    grants.challenged(server.identities.get().pk, "https://mcp.example.com/meta", ("read",))
    assert issuers.expected(server) == Expected(NAMED, ISSUER)
    challenge = Identity.objects.get().challenge
    assert (challenge["metadata_url"], challenge["scopes"]) == ("https://mcp.example.com/meta", ["read"])
    event = AuditEvent.objects.filter(action=AuditAction.SERVER_CHANGE).order_by("-seq").first()
    assert event is not None
    assert f"{ISSUER} instead of {NAMED}" in event.body


def test_an_expected_issuer_is_taken_back(admin: Any, actor: Actor, server: Server) -> None:
    issuers.expect(actor, admin, server, NAMED, ISSUER)
    grants.challenged(server.identities.get().pk, "", ())
    issuers.forget(actor, admin, server)
    assert issuers.expected(server) is None
    assert Identity.objects.get().challenge == {"metadata_url": "", "scopes": []}


def test_a_server_that_moves_is_believed_as_any_other(admin: Any, actor: Actor, server: Server) -> None:
    issuers.expect(actor, admin, server, NAMED, ISSUER)
    for url, counts in (("https://mcp.example.com/v2", True), ("https://evil.example/mcp", False)):
        moved = registering.change(actor, admin, Server.objects.get(), over_http(url=url), Server.objects.get().version)
        assert (issuers.expected(moved) is not None) == counts


@pytest.mark.parametrize(
    ("named", "issuer", "part"),
    [
        (NAMED, NAMED, "issuer"),
        ("login.example.com", ISSUER, "named"),
        (NAMED, "http://login.example.com", "issuer"),
        (NAMED, "https://a:b@login.example.com", "issuer"),
        (NAMED, f"https://login.example.com/{'x' * 500}", "issuer"),
    ],
    ids=["same", "no address", "in clear", "user", "long"],
)
def test_what_is_no_choice_is_refused_at_its_box(
    named: str, issuer: str, part: str, admin: Any, actor: Actor, server: Server
) -> None:
    with pytest.raises(ValidationError) as refused:
        issuers.expect(actor, admin, server, named, issuer)
    assert list(refused.value.message_dict) == [part]
    assert issuers.expected(server) is None


@pytest.mark.parametrize("permission", ["change_server", "manage_credential"])
def test_an_expected_issuer_needs_both_permissions(permission: str, server: Server) -> None:
    half = person("otto2", "view_server", permission)
    with pytest.raises(Denied):
        issuers.expect(Actor.of_user(half), half, server, NAMED, ISSUER)
    with pytest.raises(Denied):
        issuers.forget(Actor.of_user(half), half, server)


def test_a_local_process_has_none(admin: Any, actor: Actor) -> None:
    with pytest.raises(ValidationError):
        issuers.expect(actor, admin, registering.register(actor, admin, over_stdio()), NAMED, ISSUER)


def test_its_page_sets_it_the_card_shows_it_and_takes_it_back(admin: Any, server: Server) -> None:
    client = Client()
    client.force_login(admin)
    page = f"/credentials/for/{server.slug}/issuer/"
    assert "confirmed it" in client.get(page).content.decode()
    assert client.post(page, {"named": NAMED, "issuer": "ftp://x"}).status_code == 422
    card = client.post(page, {"named": NAMED, "issuer": ISSUER}, follow=True).content.decode()
    assert "Expected issuer" in card
    assert "instead of" in card
    assert "Expected issuer" not in client.post(page, {"forget": "1"}, follow=True).content.decode()
