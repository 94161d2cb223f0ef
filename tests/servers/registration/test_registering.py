"""The registration functions change the right rows, audit each change, and refuse users without the permission."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connection
from django.utils import timezone

from servers.audit.record import Actor
from servers.audit.verify import verify
from servers.crypto import SealBroken
from servers.enums import AuditAction, AuditOutcome, DefinitionKind
from servers.models import AuditEvent, Definition, Server, ServerDraft, ServerValue
from servers.registration import registering
from servers.registration.registering import Conflict, Registration
from servers.registration.resolved_values import launch_values
from servers.secret import Secret
from servers.signals import server_changed
from tests.servers.cast import CANARY, create_draft, header, over_http, over_stdio, variable
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(
    transaction=True
)  # on_commit callbacks never run inside the transaction of an ordinary test


@pytest.fixture
def told() -> Iterator[list[tuple[Any, Any]]]:
    """The signals that listeners received, each outside of a transaction."""
    heard: list[tuple[Any, Any]] = []

    def hear(server_uid: Any, change: Any, **_: Any) -> None:
        assert not connection.in_atomic_block
        heard.append((server_uid, change))

    server_changed.connect(hear)
    yield heard
    server_changed.disconnect(hear)


def newest(action: AuditAction) -> Any:
    """(event, its details) of the newest event of this action."""
    event = AuditEvent.objects.filter(action=action).order_by("-seq").first()
    assert event is not None, f"no event {action}"
    return event, json.loads(event.body)["details"]


def text_columns() -> str:
    """Every text and blob in the database, as a thief of a backup would search it."""
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        rows: list[Any] = []
        for table in tables:
            cursor.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - names of our own tables
            rows += cursor.fetchall()
    return "\n".join(str(bytes(cell) if isinstance(cell, memoryview | bytes) else cell) for row in rows for cell in row)


# --- registering -----------------------------------------------------------------------------------------------------------
@committed
def test_registering_makes_the_server_its_shared_identity_and_an_event(admin: Any, actor: Actor, told: Any) -> None:
    server = registering.register(
        actor, admin, over_http(tags=["a"], values=[header(), header("X-Team", "ops", secret=False)])
    )
    assert (server.slug, server.version, server.created_by) == ("orders", 1, admin)
    identity = server.identities.get()
    assert (identity.kind, identity.name, identity.declared_by) == ("shared", "shared", admin)
    event, details = newest(AuditAction.SERVER_REGISTER)
    assert (event.actor_name, event.ip, event.server_uid) == ("ada", "192.0.2.7", server.uid)
    assert details["changes"]["url"] == {"before": "", "after": "https://mcp.example.com/mcp"}
    assert details["changes"]["header Authorization"] == {"before": "absent", "after": "set"}
    assert details["changes"]["header X-Team"] == {"before": "absent", "after": "ops"}
    assert newest(AuditAction.CREDENTIAL_SET)[0].subject == "header Authorization"
    assert told == [(server.uid, AuditAction.SERVER_REGISTER)]
    assert verify().ok


def test_a_secret_is_nowhere_in_the_database_and_opens_for_the_launch(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header()]))
    registering.change(actor, admin, server, over_http(values=[header(value=CANARY + "2")]), 1)
    registering.clone(actor, admin, server)
    assert CANARY not in text_columns()
    opened = launch_values(Server.objects.get(pk=server.pk)).headers["Authorization"]
    assert isinstance(opened, Secret)
    assert opened.reveal() == CANARY + "2"


def test_a_ciphertext_copied_to_another_row_does_not_open(admin: Any, actor: Actor) -> None:
    mine = registering.register(actor, admin, over_http(values=[header()]))
    other = registering.register(
        actor, admin, over_http(name="Evil", url="https://evil.example/", values=[header(value="x")])
    )
    stolen = mine.values.get()
    other.values.update(sealed=stolen.sealed, key_id=stolen.key_id)
    with pytest.raises(SealBroken):
        launch_values(other)


def test_names_that_collide_get_numbered_short_names(admin: Any, actor: Actor) -> None:
    slugs = [
        registering.register(actor, admin, over_http(name=name)).slug for name in ("Orders", "Orders", "Add", "日本")
    ]
    assert slugs == ["orders", "orders-2", "add-2", "server"]


def test_a_short_name_that_is_taken_is_refused_in_words(admin: Any, actor: Actor) -> None:
    registering.register(actor, admin, over_http(slug="orders"))
    with pytest.raises(ValidationError) as refused:
        registering.register(actor, admin, over_http(slug="orders"))
    assert "slug" in refused.value.message_dict
    assert Server.objects.count() == 1


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (over_http(url="ftp://x/"), "url"),
        (over_http(url="https://user:pw@x/"), "url"),
        (over_http(url="https://x/#part"), "url"),
        (over_http(url="https:///nohost"), "url"),
        (over_http(name=" "), "name"),
        (over_http(slug="add"), "slug"),
        (over_http(slug="no blanks"), "slug"),
        (over_http(connect_timeout_seconds=0), "connect_timeout_seconds"),
        (over_http(total_timeout_seconds=1), "total_timeout_seconds"),
        (over_http(values=[header("Mcp-Session-Id")]), "values"),
        (over_http(values=[header("X-A", "a\r\nB: c", secret=False)]), "values"),
        (over_http(values=[header("X-A", "1"), header("x-a", "2")]), "values"),
        (over_http(values=[header(value=None)]), None),
        (over_stdio(command="  "), "command"),
        (over_stdio(command="npx\n-y"), "command"),
        (over_stdio(arguments=["a\0b"]), "arguments"),
        (over_stdio(working_directory="relative/path"), "working_directory"),
        (over_stdio(values=[variable("NOT-A-NAME")]), "values"),
        (over_http(environment="moon"), "environment"),
    ],
)
def test_what_is_not_legal_is_refused_at_its_field_and_leaves_no_row(
    data: Registration, field: str | None, admin: Any, actor: Actor
) -> None:
    with pytest.raises(ValidationError) as refused:
        registering.register(actor, admin, data)
    assert field is None or field in refused.value.message_dict
    assert not Server.objects.exists()
    assert not AuditEvent.objects.filter(action=AuditAction.SERVER_REGISTER).exists()


# --- changing --------------------------------------------------------------------------------------------------------------
@committed
def test_a_change_is_written_down_before_and_after(admin: Any, actor: Actor, told: Any) -> None:
    server = registering.register(actor, admin, over_http(values=[header(), header("X-Team", "ops", secret=False)]))
    after = over_http(
        description="New", owner_id=admin.pk, values=[header(value="other"), header("X-Team", "dev", secret=False)]
    )
    changed = registering.change(actor, admin, server, after, server.version)
    assert (changed.version, changed.slug, changed.description) == (2, "orders", "New")
    _, details = newest(AuditAction.SERVER_CHANGE)
    assert details["changes"] == {
        "description": {"before": "", "after": "New"},
        "owner_id": {"before": "", "after": "ada"},
        "header Authorization": {"before": "set", "after": "changed"},
        "header X-Team": {"before": "ops", "after": "dev"},
    }
    assert told[-1] == (server.uid, AuditAction.SERVER_CHANGE)


def test_an_empty_box_keeps_the_secret_and_a_missing_row_removes_it(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header()]))
    sealed = bytes(server.values.get().sealed)
    kept = registering.change(actor, admin, server, over_http(name="New", values=[header(value=None)]), 1)
    assert bytes(kept.values.get().sealed) == sealed
    registering.change(actor, admin, server, over_http(name="New"), 2)
    assert not ServerValue.objects.exists()
    assert newest(AuditAction.CREDENTIAL_REMOVE)[0].subject == "header Authorization"


def test_saving_without_a_change_is_no_event_and_no_conflict_for_another_admin(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header()]))
    same = over_http(values=[header(value=None)])
    assert registering.change(actor, admin, server, same, 1).version == 1
    assert not AuditEvent.objects.filter(action=AuditAction.SERVER_CHANGE).exists()
    assert registering.change(actor, admin, server, replace(same, description="new"), 1).version == 2


def test_the_second_of_two_admins_sees_the_difference_and_changes_nothing(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header()]))
    registering.change(actor, admin, server, over_http(description="first", values=[header(value=None)]), 1)
    events = AuditEvent.objects.count()
    with pytest.raises(Conflict) as conflict:
        registering.change(actor, admin, server, over_http(description="second", values=[header(value="x")]), 1)
    shown = {item.name: (item.current, item.yours) for item in conflict.value.differences}
    assert shown == {"description": ("first", "second"), "header authorization": ("(secret)", "(new secret)")}
    assert Server.objects.get().description == "first"
    assert AuditEvent.objects.count() == events
    again = over_http(description="second", values=[header(value=None)])
    assert registering.change(actor, admin, server, again, conflict.value.current.version).description == "second"


@pytest.mark.parametrize(
    "url", ["https://evil.example/mcp", "https://mcp.example.com.evil.example/mcp", "https://mcp.example.com:444/mcp"]
)
def test_a_kept_secret_never_follows_a_changed_origin(url: str, admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header()]))
    with pytest.raises(ValidationError, match="Authorization"):
        registering.change(actor, admin, server, over_http(url=url, values=[header(value=None)]), 1)
    assert Server.objects.get().url == "https://mcp.example.com/mcp"
    registering.change(actor, admin, server, over_http(url=url, values=[header(value="new")]), 1)


def test_a_new_path_of_the_same_origin_keeps_the_secret(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header()]))
    moved = over_http(url="HTTPS://MCP.example.com:443/v2", values=[header(value=None)])
    assert registering.change(actor, admin, server, moved, 1).url.endswith("/v2")


def test_a_url_with_a_token_in_its_query_is_masked_in_the_log(admin: Any, actor: Actor) -> None:
    registering.register(actor, admin, over_http(url=f"https://x.example/mcp?api_key={CANARY}&team=ops"))
    event, details = newest(AuditAction.SERVER_REGISTER)
    assert details["changes"]["url"]["after"] == "https://x.example/mcp?api_key=…&team=ops"
    assert CANARY not in event.body


# --- the other verbs ---------------------------------------------------------------------------------------------------------
@committed
def test_each_verb_has_its_event_and_its_signal_once(admin: Any, actor: Actor, told: Any) -> None:
    server = registering.register(actor, admin, over_http(), enabled=False)
    for verb in ("enable", "enable", "disable", "archive", "archive", "restore"):
        server = getattr(registering, verb)(actor, admin, server)
    registering.delete(actor, admin, server)
    expected = [
        AuditAction.SERVER_REGISTER,
        AuditAction.SERVER_ENABLE,
        AuditAction.SERVER_DISABLE,
        AuditAction.SERVER_ARCHIVE,
        AuditAction.SERVER_RESTORE,
        AuditAction.SERVER_DELETE,
    ]
    assert [change for _, change in told] == expected
    written = AuditEvent.objects.filter(server_uid=server.uid).order_by("seq").values_list("action", flat=True)
    assert list(written) == [str(action) for action in expected]
    assert set(AuditEvent.objects.filter(server_uid=server.uid).values_list("server_name", flat=True)) == {"Orders"}


def test_archiving_disables_and_restoring_leaves_it_disabled(admin: Any, actor: Actor) -> None:
    server = registering.archive(actor, admin, registering.register(actor, admin, over_http()))
    assert not server.enabled
    with pytest.raises(ValidationError, match="Restore it first"):
        registering.enable(actor, admin, server)
    server = registering.restore(actor, admin, server)
    assert (server.enabled, server.archived_at) == (False, None)


def test_a_copy_is_disabled_and_has_sealed_values_of_its_own(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_stdio(values=[variable()]))
    copy = registering.clone(actor, admin, server)
    assert (copy.name, copy.slug, copy.enabled, copy.arguments) == (
        "Files (copy)",
        "files-copy",
        False,
        ["-y", "files"],
    )
    assert copy.values.get().uid != server.values.get().uid
    assert launch_values(copy).environment["API_TOKEN"].reveal() == CANARY
    assert copy.identities.count() == 1
    assert newest(AuditAction.SERVER_CLONE)[1]["copied_from"] == "Files"


def test_what_depends_on_a_server_goes_with_it(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header()]))
    now = timezone.now()
    for position in range(2):
        moments = {"first_seen_at": now, "changed_at": now}
        kind, identity = DefinitionKind.TOOL, server.identities.get()
        server.definitions.create(
            identity=identity, kind=kind, key=str(position), position=position, body="{}", **moments
        )
    registering.delete(actor, admin, server)
    assert not ServerValue.objects.exists()
    assert not Definition.objects.exists()
    assert verify().ok


# --- permissions ------------------------------------------------------------------------------------------------------
STDIO_ROADS: dict[str, Callable[[Actor, Any, Server], object]] = {
    "register": lambda actor, user, server: registering.register(actor, user, over_stdio(name="New")),
    "change": lambda actor, user, server: registering.change(
        actor, user, server, over_stdio(command="sh"), server.version
    ),
    "clone": registering.clone,
    "enable": registering.enable,
    "test": lambda actor, user, server: create_draft(actor, user, over_stdio()),
}


@pytest.mark.parametrize("road", STDIO_ROADS)
def test_a_command_needs_the_permission_on_every_road(road: str, admin: Any, operator: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_stdio(), enabled=False)
    before = AuditEvent.objects.count()
    with pytest.raises(PermissionDenied):
        STDIO_ROADS[road](Actor.of_user(operator, "192.0.2.8"), operator, server)
    event, details = newest(AuditAction.PERMISSION_DENY)
    assert (event.actor_name, event.outcome, event.ip) == ("otto", AuditOutcome.DENIED, "192.0.2.8")
    assert details == {"right": "manage_stdio"}
    assert AuditEvent.objects.count() == before + 1
    assert Server.objects.count() == 1
    assert not ServerDraft.objects.exists()
    assert Server.objects.get().command == "npx"


def test_turning_an_http_server_into_a_command_needs_the_permission(admin: Any, operator: Any, actor: Actor) -> None:
    server = registering.register(actor, operator, over_http())
    with pytest.raises(PermissionDenied):
        registering.change(Actor.of_user(operator), operator, server, over_stdio(), 1)
    assert Server.objects.get().transport == "streamable_http"


VERBS: dict[str, Callable[[Actor, Any, Server], object]] = {
    "register": lambda actor, user, server: registering.register(actor, user, over_http(name="New")),
    "change": lambda actor, user, server: registering.change(actor, user, server, over_http(name="New"), 1),
    "clone": registering.clone,
    "enable": registering.enable,
    "disable": registering.disable,
    "archive": registering.archive,
    "restore": registering.restore,
    "delete": registering.delete,
}


@pytest.mark.parametrize("verb", VERBS)
def test_who_may_only_look_is_refused_every_verb_and_that_is_written_down(
    verb: str, admin: Any, visitor: Any, actor: Actor
) -> None:
    server = registering.register(actor, admin, over_http())
    stored = Server.objects.values().get()
    with pytest.raises(PermissionDenied):
        VERBS[verb](Actor.of_user(visitor), visitor, server)
    assert newest(AuditAction.PERMISSION_DENY)[0].actor_name == "vera"
    assert Server.objects.values().get() == stored


def test_a_copy_of_credentials_needs_permission_to_change_too(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header()]))
    adder = person("anna", "view_server", "add_server")
    with pytest.raises(PermissionDenied):
        registering.clone(Actor.of_user(adder), adder, server)
    assert Server.objects.count() == 1


def test_the_holder_of_the_permission_may_enter_any_command(actor: Actor, db: None) -> None:
    holder = person("hera", "view_server", "add_server", "manage_stdio")
    odd = replace(over_stdio(), command="/bin/sh", arguments=["-c", "echo $(date) | cat; true", ""])
    assert registering.register(Actor.of_user(holder), holder, odd).arguments[1] == "echo $(date) | cat; true"


def test_who_may_not_see_servers_registers_none_whatever_else_they_may(db: None) -> None:
    bob = person("bob", "add_server", "manage_stdio", "change_server")
    with pytest.raises(PermissionDenied, match="see servers"):
        registering.register(Actor.of_user(bob), bob, over_stdio())
    with pytest.raises(PermissionDenied, match="see servers"):
        create_draft(Actor.of_user(bob), bob, over_http())
    assert not Server.objects.exists()
    assert newest(AuditAction.PERMISSION_DENY)[0].actor_name == "bob"


@committed
@pytest.mark.parametrize(
    ("changed", "reconnect"),
    [({"description": "in other words", "tags": ["new"]}, False), ({"request_timeout_seconds": 61}, True)],
)
def test_only_a_change_of_the_connection_asks_for_a_new_one(
    admin: Any, actor: Actor, changed: dict[str, Any], reconnect: bool
) -> None:
    server = registering.register(actor, admin, over_http())
    heard: list[bool] = []

    def hear(reconnect: bool, **_: Any) -> None:
        heard.append(reconnect)

    server_changed.connect(hear)
    try:
        data = replace(Registration.of_server(server), **changed)
        registering.change(actor, admin, server, data, server.version)
    finally:
        server_changed.disconnect(hear)
    assert heard == [reconnect]


def test_of_two_people_who_delete_one_server_the_first_makes_the_event(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http())
    late = Server.objects.get()
    registering.delete(actor, admin, server)
    registering.delete(actor, admin, late)
    assert AuditEvent.objects.filter(action=AuditAction.SERVER_DELETE).count() == 1
