"""Every way to register a server can set what it may request of people and which workers may open it."""

from typing import Any

import pytest
from django.core.management import CommandError

from servers.audit.record import Actor
from servers.models import Server, ServerDraft
from servers.registration import drafts, registering
from servers.registration.differences import differences
from servers.registration.registering import Registration
from servers.signals import server_changed
from tests.servers.cast import create_draft, over_http
from tests.servers.test_commands import register
from tests.servers.test_forms import data_of, filled

pytestmark = pytest.mark.django_db(transaction=True)
URL = {"url": "https://x.example/mcp"}
SWITCHES = ("answers_elicitation", "answers_sampling")


def stored(server: Server) -> tuple[str, bool, bool]:
    row = Server.objects.get(pk=server.pk)
    return row.worker_label, row.answers_elicitation, row.answers_sampling


def test_a_new_server_may_ask_and_runs_anywhere(admin: Any, actor: Actor) -> None:
    assert stored(registering.register(actor, admin, over_http())) == ("", True, True)


def test_the_page_switches_each_off_for_itself(admin: Any, actor: Actor) -> None:
    data = data_of(filled(admin, None, **URL, worker_label=" gpu ", answers_sampling="on"))
    assert stored(registering.register(actor, admin, data)) == ("gpu", False, True)


def test_the_command_line_has_them_too(admin: Any) -> None:
    register("--worker-label", "gpu", "--no-sampling", "--", "true")
    assert stored(Server.objects.get()) == ("gpu", True, False)


@pytest.mark.parametrize("label", ["two words", "-gpu", "g/pu", "gpü", "g" * 61])
def test_a_label_that_is_none_is_refused_on_every_road(label: str, admin: Any) -> None:
    assert "worker_label" in filled(admin, None, **URL, worker_label=label).errors
    with pytest.raises(CommandError, match="worker_label"):
        register(f"--worker-label={label}", "--", "true")


@pytest.mark.parametrize("change", [{name: False} for name in SWITCHES] + [{"worker_label": "gpu"}], ids=str)
def test_a_change_opens_the_connection_again(change: dict[str, Any], admin: Any, actor: Actor) -> None:
    server, heard = registering.register(actor, admin, over_http()), []

    def hear(reconnect: bool, **_: Any) -> None:
        heard.append(reconnect)

    server_changed.connect(hear)
    try:
        data = Registration.of({**vars(Registration.of_server(server)), **change})
        registering.change(actor, admin, server, data, server.version)
    finally:
        server_changed.disconnect(hear)
    assert heard == [True]


def test_a_conflict_says_on_and_off(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http())
    data = Registration.of({**vars(Registration.of_server(server)), "answers_sampling": False})
    (found,) = differences(server, data)
    assert (found.field, found.current, found.yours) == ("Sampling", "on", "off")


def test_a_copy_and_a_draft_keep_them(admin: Any, actor: Actor) -> None:
    data = Registration.of({**vars(over_http()), "worker_label": "gpu", "answers_elicitation": False})
    server = registering.register(actor, admin, data)
    assert stored(registering.clone(actor, admin, server)) == ("gpu", False, True)
    draft = create_draft(actor, admin, data)
    opened = drafts.open_draft(ServerDraft.objects.get(pk=draft.pk))
    assert (draft.worker_label, opened.answers_elicitation) == ("gpu", False)
