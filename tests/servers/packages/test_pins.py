"""Pins are kept by starts and changed by people with permission to register commands; each change is audited."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from servers.access import Denied
from servers.audit.record import Actor
from servers.enums import AuditAction, AuditOutcome, Ecosystem, PinState
from servers.models import AuditEvent, PinnedPackage, Server
from servers.packages import checks, locks, page, pins
from servers.packages.pins import Pin, StaleConfirmation
from servers.registration import registering
from servers.registration.exporting import export
from servers.registration.importing import applying
from servers.registration.importing.applying import Choice, Decision
from servers.registration.importing.document import read
from servers.registration.importing.entries import parse
from servers.registration.importing.planning import plan
from tests.servers.cast import over_stdio
from tests.servers.conftest import person
from tests.servers.packages.pinned import lock_of, pin_of, put

pytestmark = pytest.mark.django_db


@pytest.fixture
def server(actor: Actor, admin: Any) -> Server:
    return registering.register(actor, admin, over_stdio())


def pinned(server: Server) -> PinnedPackage:
    return PinnedPackage.objects.get(server=server, state=PinState.PINNED)


def details(action: AuditAction) -> Any:
    event = AuditEvent.objects.filter(action=action).latest("seq")
    return json.loads(event.body)["details"]


def test_the_first_start_pins_and_a_later_one_gets_what_is_pinned(server: Server) -> None:
    assert pins.keep(server.pk, pin_of("1.2.3"), None) == pin_of("1.2.3")
    assert pins.keep(server.pk, pin_of("1.2.4"), None) == pin_of("1.2.3")
    assert pinned(server).version == "1.2.3"


def test_a_server_that_was_deleted_during_its_first_start_is_pinned_nowhere(server: Server) -> None:
    Server.objects.all().delete()
    assert pins.keep(server.pk, pin_of(), None) == pin_of()
    assert not PinnedPackage.objects.exists()


def test_another_package_in_the_command_ends_the_pin(server: Server, actor: Actor, admin: Any) -> None:
    put(server, PinState.PINNED)
    put(server, PinState.OFFERED, pin_of("1.2.4"))
    changed = over_stdio(arguments=["-y", "files@2.0.0"])
    server = registering.change(actor, admin, server, changed, server.version)
    assert pins.of_server(server) is None
    pins.keep(server.pk, pin_of("2.0.0", requested="files@2.0.0"), None)
    assert list(server.packages.values_list("state", "version")) == [("pinned", "2.0.0")]


def test_other_arguments_of_the_server_keep_the_pin(server: Server, actor: Actor, admin: Any) -> None:
    put(server, PinState.PINNED)
    server = registering.change(actor, admin, server, over_stdio(arguments=["-y", "files", "/srv"]), server.version)
    assert pins.of_server(server) == pin_of()


def test_an_update_and_the_way_back_are_audited_with_names_and_hashes(server: Server, actor: Actor, admin: Any) -> None:
    put(server, PinState.PINNED)
    put(server, PinState.OFFERED, pin_of("1.2.4"))
    row = pins.update(actor, admin, server, "sha512-1.2.4")
    assert (row.version, row.pinned_by, row.pinned_name) == ("1.2.4", admin, "ada")
    one = {"name": "files", "version": "1.2.3", "integrity": "sha512-1.2.3"}
    other = {"name": "files", "version": "1.2.4", "integrity": "sha512-1.2.4"}
    assert details(AuditAction.PACKAGE_UPDATE) == {"before": one, "after": other}
    assert pins.go_back(actor, admin, server, "sha512-1.2.3").version == "1.2.3"
    assert details(AuditAction.PACKAGE_BACK) == {"before": other, "after": one}
    found = page.head(server)
    assert found is not None
    assert (found.update, found.previous, found.offer and found.offer.version) == (True, None, "1.2.4")


def test_other_content_of_the_same_version_is_pinned_by_a_deliberate_act_of_its_own_kind(
    server: Server, actor: Actor, admin: Any
) -> None:
    put(server, PinState.PINNED, changed_integrity="sha512-other", changed_name="files")
    put(server, PinState.OFFERED, pin_of("1.2.3", "sha512-other"))
    found = page.head(server)
    assert found is not None
    assert (found.changed, found.is_repin, found.update) == (True, True, False)
    pins.update(actor, admin, server, "sha512-other")
    assert details(AuditAction.PACKAGE_REPIN)["after"]["integrity"] == "sha512-other"
    assert (pinned(server).integrity, pinned(server).changed_integrity) == ("sha512-other", "")


def test_an_offer_that_changed_since_the_page_was_shown_is_not_taken(server: Server, actor: Actor, admin: Any) -> None:
    put(server, PinState.PINNED)
    put(server, PinState.OFFERED, pin_of("1.2.4"))
    with pytest.raises(StaleConfirmation):
        pins.update(actor, admin, server, "sha512-1.2.5")
    assert pinned(server).version == "1.2.3"


@pytest.mark.parametrize("permissions", [("change_server",), ("manage_stdio",), ("call_tool", "manage_credential")])
def test_without_permission_to_register_commands_nothing_changes_and_the_refusal_is_recorded(
    server: Server, permissions: tuple[str, ...]
) -> None:
    put(server, PinState.PINNED)
    put(server, PinState.PREVIOUS, pin_of("1.2.2"))
    put(server, PinState.OFFERED, pin_of("1.2.4"))
    user = person("eve", "view_server", *permissions)
    actor = Actor.of_user(user)
    for act in (
        lambda: pins.update(actor, user, server, "sha512-1.2.4"),
        lambda: pins.go_back(actor, user, server, "sha512-1.2.2"),
        lambda: pins.request_check(actor, user, server),
        lambda: pins.request_comparison(actor, user, server, "sha512-1.2.4"),
    ):
        with pytest.raises(Denied):
            act()
    assert pinned(server).version == "1.2.3"
    assert not checks.waiting([])
    assert AuditEvent.objects.filter(action=AuditAction.PERMISSION_DENY, outcome=AuditOutcome.DENIED).count() == 4


# --- comparisons with the registry ----------------------------------------------------------------------------------------
def test_checks_are_due_by_age_bounded_and_off_by_the_setting(server: Server, settings: Any) -> None:
    row = put(server, PinState.PINNED, pinned_at=timezone.now())
    settings.PACKAGE_CHECK_HOURS = 24
    assert checks.request_due() == []
    PinnedPackage.objects.update(pinned_at=timezone.now() - timedelta(hours=25))
    settings.PACKAGE_CHECK_HOURS = 0
    assert checks.request_due() == []
    settings.PACKAGE_CHECK_HOURS = 24
    assert checks.request_due() == [(server.uid, "")]
    assert checks.request_due() == []
    assert checks.waiting([]) == [server.uid]
    assert checks.claim(server.uid) == ("check", server.pk)
    assert checks.claim(server.uid) is None
    checks.checked(server.pk, pin_of(), same=pin_of())
    row.refresh_from_db()
    assert (row.check_requested_at, row.check_started_at, row.checked_at is None) == (None, None, False)
    assert checks.request_due() == []


def test_a_check_offers_a_new_version_and_notes_other_content(server: Server) -> None:
    put(server, PinState.PINNED)
    assert checks.checked(server.pk, pin_of(), same=pin_of("1.2.3", "sha512-other"), offer=pin_of("1.2.4"))
    assert not checks.checked(server.pk, pin_of(), same=pin_of("1.2.3", "sha512-other"), offer=pin_of("1.2.4"))
    assert (pinned(server).changed_integrity, pinned(server).version) == ("sha512-other", "1.2.3")
    assert server.packages.get(state=PinState.OFFERED).version == "1.2.4"
    assert not checks.checked(server.pk, pin_of(), same=pin_of())
    assert (pinned(server).changed_integrity, server.packages.count()) == ("", 1)


@pytest.mark.parametrize(
    ("offered", "still", "offers"),
    [
        (lock_of("1.2.3", helper="1.0.0/other"), "helper", True),
        (lock_of("1.2.3", helper="1.0.0"), "", False),
        (lock_of("1.2.3", helper="1.0.0", more="1.0.0"), "", True),
        (lock_of("1.2.3", helper="2.0.0"), "helper", True),
    ],
)
def test_a_dependency_that_has_its_pinned_content_again_is_no_longer_reported(
    offered: str, still: str, offers: bool, server: Server
) -> None:
    put(server, PinState.PINNED, changed_integrity="sha512-other" if still else "sha512-bad", changed_name="helper")
    assert not checks.checked(server.pk, pin_of(), same=pin_of(), offer=pin_of(lock=offered))
    assert pinned(server).changed_name == still
    assert server.packages.filter(state=PinState.OFFERED).exists() is offers


def test_a_failed_check_keeps_what_was_offered(server: Server) -> None:
    put(server, PinState.PINNED)
    put(server, PinState.OFFERED, pin_of("1.2.4"))
    checks.checked(server.pk, pin_of(), problem="The registry did not answer.")
    assert pinned(server).check_problem == "The registry did not answer."
    assert server.packages.filter(state=PinState.OFFERED).exists()


def test_a_lock_difference_names_what_was_added_removed_changed_and_rebuilt() -> None:
    before = lock_of("1.2.3", gone="1.0.0", newer="1.0.0", same="1.0.0", other="1.0.0/a")
    after = lock_of("1.2.4", newer="2.0.0", same="1.0.0", other="1.0.0/b", added="3.0.0")
    found = locks.difference(Ecosystem.NPM, before, after, "files")
    assert found.lines == [
        ("Added", "added", "", "3.0.0"),
        ("Removed", "gone", "1.0.0", ""),
        ("Changed", "newer", "1.0.0", "2.0.0"),
        ("Rebuilt", "other", "1.0.0", "1.0.0"),
    ]


def test_a_python_package_is_no_dependency_of_its_own_however_its_name_is_written() -> None:
    before, after = (f'[[packages]]\nname = "mcp-notes"\nversion = "{version}"\n' for version in ("1.0", "1.1"))
    assert locks.difference(Ecosystem.PYPI, before, after, "MCP_Notes").count == 0


# --- copies ----------------------------------------------------------------------------------------------------------------
def test_a_copy_of_a_server_runs_what_is_pinned(server: Server, actor: Actor, admin: Any) -> None:
    put(server, PinState.PINNED)
    assert pins.of_server(registering.clone(actor, admin, server)) == pin_of()


def imported(actor: Actor, admin: Any, text: str) -> Server:
    document = read(text)
    proposals = plan(admin, document)
    [outcome] = applying.apply(actor, admin, document, proposals, {0: Decision(Choice.CREATE)})
    assert outcome.result == "created", outcome
    return Server.objects.get(slug=outcome.slug)


def test_an_imported_pin_of_another_version_than_the_command_names_is_left_out(
    server: Server, actor: Actor, admin: Any
) -> None:
    """The preview shows the command."""
    text = export([server])
    entries = json.loads(text)
    entry = entries["mcpServers"]["Files"]
    entry["args"] = ["-y", "files@1.2.3"]
    package = {"ecosystem": "npm", "name": "files", "integrity": f"sha512-{'a' * 86}=="}
    for version, kept in (("6.6.6", False), ("1.2.3", True)):
        entry["mcpadmin"]["package"] = package | {"version": version}
        Server.objects.all().delete()
        found = imported(actor, admin, json.dumps(entries))
        assert (pins.of_server(found) is not None) is kept
        document = read(json.dumps(entries))
        notes = parse(document, *document.servers[0]).notes
        assert any("6.6.6 does not match the version in the command, 1.2.3" in note for note in notes) is not kept


def test_an_exported_pin_is_imported_and_one_that_is_missing_is_made_at_the_first_start(
    server: Server, actor: Actor, admin: Any
) -> None:
    integrity = f"sha512-{'a' * 86}=="
    put(server, PinState.PINNED, pin_of(integrity=integrity))
    text = export([server])
    registering.delete(actor, admin, server)
    there = pins.of_server(imported(actor, admin, text))
    assert there == Pin(Ecosystem.NPM, "files", "files", "1.2.3", integrity)
    Server.objects.all().delete()
    entries = json.loads(text)
    del entries["mcpServers"]["Files"]["mcpadmin"]["package"]
    assert pins.of_server(imported(actor, admin, json.dumps(entries))) is None
