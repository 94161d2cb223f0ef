"""Wrong roots and limits of a registration are refused everywhere, and changes are audited."""

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import CommandError

from servers.audit.record import Actor
from servers.enums import AuditAction, EraChoice, TransportKind
from servers.models import AuditEvent, Server
from servers.registration import registering
from servers.registration.drafts import open_draft
from servers.registration.registering import Conflict
from servers.signals import server_changed
from tests.servers.cast import create_draft, over_http

ROOT, OTHER = {"uri": "file:///srv/data", "name": "Data"}, {"uri": "file:///srv/other", "name": ""}
pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)


@pytest.fixture
def reconnects() -> Iterator[list[bool]]:
    heard: list[bool] = []

    def hear(reconnect: bool, **_: Any) -> None:
        heard.append(reconnect)

    server_changed.connect(hear)
    yield heard
    server_changed.disconnect(hear)


def last_changes() -> dict[str, Any]:
    event = AuditEvent.objects.filter(action=AuditAction.SERVER_CHANGE).order_by("-seq").first()
    assert event is not None
    return dict(json.loads(event.body)["details"]["changes"])


@committed
def test_changed_roots_are_audited_and_reopen_no_session(admin: Any, actor: Actor, reconnects: list[bool]) -> None:
    server = registering.register(actor, admin, over_http(roots=[ROOT]))
    registering.change(actor, admin, server, over_http(roots=[ROOT, OTHER]), 1)
    assert last_changes() == {
        "roots": {"before": ["file:///srv/data (Data)"], "after": ["file:///srv/data (Data)", "file:///srv/other"]}
    }
    assert reconnects == [False, False]


@committed
@pytest.mark.parametrize("change", [{"limits": {"depth": 32}}, {"transport": TransportKind.HTTP_SSE}])
def test_changed_limits_and_transports_reopen_the_session(
    change: dict[str, Any], admin: Any, actor: Actor, reconnects: list[bool]
) -> None:
    server = registering.register(actor, admin, over_http())
    registering.change(actor, admin, server, over_http(**change), 1)
    assert last_changes().keys() == change.keys()
    assert reconnects == [False, True]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"roots": [{"uri": "https://x/", "name": ""}]}, "roots"),
        ({"roots": [ROOT, ROOT]}, "roots"),
        ({"roots": [{"uri": f"file:///{n}", "name": ""} for n in range(51)]}, "roots"),
        ({"limits": {"depth": 0}}, "limits"),
        ({"limits": {"depth": True}}, "limits"),
        ({"limits": {"no_such": 1}}, "limits"),
        ({"transport": TransportKind.HTTP_SSE, "era": EraChoice.MODERN}, "era"),
        ({"transport": TransportKind.WEBSOCKET}, "url"),
        ({"transport": TransportKind.AUTO_HTTP, "url": "wss://x/"}, "url"),
    ],
)
def test_what_is_wrong_is_refused_at_its_field(fields: dict[str, Any], field: str, admin: Any, actor: Actor) -> None:
    with pytest.raises(ValidationError) as refused:
        registering.register(actor, admin, over_http(**fields))
    assert list(refused.value.message_dict) == [field]


def test_a_copy_and_a_draft_have_the_roots_and_limits(admin: Any, actor: Actor) -> None:
    data = over_http(roots=[ROOT], limits={"depth": 32})
    copy = registering.clone(actor, admin, registering.register(actor, admin, data))
    opened = open_draft(create_draft(actor, admin, data))
    assert [(item.roots, item.limits) for item in (copy, opened)] == [([ROOT], {"depth": 32})] * 2


def test_two_admins_see_roots_and_limits_in_words(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http())
    registering.change(actor, admin, server, over_http(roots=[ROOT]), 1)
    with pytest.raises(Conflict) as conflict:
        registering.change(actor, admin, server, over_http(limits={"depth": 32, "rounds": 2}), 1)
    shown = {item.field: (item.current, item.yours) for item in conflict.value.differences}
    assert shown == {"Roots": ("file:///srv/data (Data)", ""), "Limits": ("", "Depth: 32\nRounds: 2")}


@pytest.mark.parametrize(
    ("arguments", "transport"),
    [
        (["--url", "https://x.example/mcp"], "auto_http"),
        (["--url", "wss://x.example/ws"], "websocket"),
        (["--url", "https://x.example/sse", "--transport", "http_sse"], "http_sse"),
    ],
)
def test_the_command_takes_every_transport_and_roots(arguments: list[str], transport: str, admin: Any) -> None:
    more = ["--root", "/srv/data=Data", "--era", "legacy"]
    call_command("register_server", "--user", admin.username, "--name", "X", *arguments, *more, stdout=StringIO())
    server = Server.objects.get()
    assert (server.transport, server.roots, server.era) == (transport, [ROOT], "legacy")


def test_the_command_refuses_a_transport_for_a_command_line(admin: Any) -> None:
    with pytest.raises(CommandError, match="stdio"):
        call_command(
            *("register_server", "--user", admin.username, "--name", "X", "--transport", "http_sse", "--", "npx")
        )
