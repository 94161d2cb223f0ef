"""From a registration to a specification: transports, limits, roots, memory."""

from dataclasses import fields
from typing import Any

import pytest
from django.conf import settings

from servers.enums import TransportKind
from sessions.host.launch import Launch, limits_of, load
from sessions.models import McpSession
from sessions.protocol.limits import Limits
from sessions.transports.registry import HttpSpec, StdioSpec, WebSocketSpec
from tests.sessions.host.make import make_greeting, make_session

pytestmark = pytest.mark.django_db


def launch(**server: Any) -> Launch:
    return load(make_session(**server).pk)


def test_the_settings_repeat_the_defaults_of_the_protocol() -> None:
    assert {name: getattr(Limits(), name) for name in settings.LIMITS} == settings.LIMITS
    assert limits_of({}) == Limits()


def test_a_servers_own_limits_go_before_the_instances() -> None:
    found = limits_of({"depth": 12, "events_per_second": 10})
    assert (found.depth, found.events_per_second, found.events_burst) == (12, 10, 50)
    assert found.message_bytes == settings.LIMITS["message_bytes"]


def test_what_carries_a_message_is_never_smaller_than_the_message() -> None:
    size = 200 * 1024 * 1024
    found = limits_of({"message_bytes": size})
    assert min(found.inflated_bytes, found.line_bytes, found.sse_event_bytes) >= size


def test_no_limit_of_the_protocol_is_forgotten() -> None:
    derived = {"sse_event_bytes", "events_burst"}
    of_the_machine = {"noise_lines", "stderr_bytes", "line_chars", "http_connections"}
    assert {item.name for item in fields(Limits)} == settings.LIMITS.keys() | derived | of_the_machine


@pytest.mark.parametrize(
    ("transport", "kind"),
    [
        (TransportKind.AUTO_HTTP, "auto"),
        (TransportKind.STREAMABLE_HTTP, "streamable_http"),
        (TransportKind.HTTP_SSE, "http_sse"),
    ],
)
def test_each_transport_over_http_is_asked_for_by_its_kind(transport: TransportKind, kind: str) -> None:
    spec = launch(transport=transport, command="", url="https://x.example/").spec
    assert isinstance(spec, HttpSpec)
    assert (spec.kind, spec.url, spec.limits) == (kind, "https://x.example/", Limits())


def test_a_websocket_and_a_command_have_specifications_of_their_own() -> None:
    assert isinstance(
        launch(slug="a", transport=TransportKind.WEBSOCKET, command="", url="wss://x/").spec, WebSocketSpec
    )
    assert isinstance(launch(slug="b").spec, StdioSpec)


def test_limits_and_roots_of_the_server_reach_the_connection() -> None:
    found = launch(roots=[{"uri": "file:///srv", "name": "Srv"}], limits={"rounds": 2})
    assert (found.roots, found.limits.rounds) == ((("file:///srv", "Srv"),), 2)


def test_what_is_remembered_is_given_and_what_nobody_wrote_is_not() -> None:
    session = make_session()
    McpSession.objects.update(remembered=make_greeting().remembered)
    found = load(session.pk).remembered
    assert found is not None
    assert (found.revision, found.kind) == ("2025-11-25", "stdio")
    McpSession.objects.update(remembered={"era": "modern", "revision": "2025-11-25"})
    assert load(session.pk).remembered is None
