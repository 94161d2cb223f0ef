"""Applying an import registers each server separately, with the rules and refusals of the registration functions."""

import json
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from servers.audit.record import Actor
from servers.crypto import SealError
from servers.enums import AuditAction, AuditOutcome
from servers.models import AuditEvent, Server, ServerDraft
from servers.registration import registering
from servers.registration.importing import stored_preview
from servers.registration.importing.applying import Choice, Decision, ImportOutcome, apply
from servers.registration.importing.document import read
from servers.registration.importing.planning import Plan, plan
from servers.registration.resolved_values import launch_values
from servers.secret import Secret
from tests.servers.cast import CANARY, header, over_http, over_stdio
from tests.servers.conftest import person
from tests.servers.registration.test_registering import text_columns

pytestmark = pytest.mark.django_db


def imported(user: Any, servers: dict[str, Any], decisions: dict[int, Decision] | None = None) -> list[ImportOutcome]:
    document = read(json.dumps({"mcpServers": servers}))
    proposals = plan(user, document)
    decided = decisions or {proposal.index: Decision(Choice.CREATE) for proposal in proposals}
    return apply(Actor.of_user(user), user, document, proposals, decided)


def test_the_servers_of_a_file_are_registered_and_each_is_written_down(admin: Any) -> None:
    outcomes = imported(
        admin,
        {
            "files": {"command": "npx", "args": ["-y", "@acme/files"], "env": {"API_TOKEN": CANARY, "LEVEL": "debug"}},
            "orders": {"url": "https://orders.example/mcp", "headers": {"Authorization": f"Bearer {CANARY}"}},
        },
    )
    assert [(outcome.result, outcome.slug) for outcome in outcomes] == [("created", "files"), ("created", "orders")]
    files, orders = Server.objects.order_by("slug")
    environment = launch_values(files).environment
    assert (environment["LEVEL"], environment["API_TOKEN"].reveal()) == ("debug", CANARY)  # type: ignore[union-attr]  # a Secret
    assert launch_values(orders).headers["Authorization"].reveal() == f"Bearer {CANARY}"  # type: ignore[union-attr]  # a Secret
    assert AuditEvent.objects.filter(action=AuditAction.SERVER_REGISTER, actor_name="ada").count() == 2
    assert AuditEvent.objects.filter(action=AuditAction.CREDENTIAL_SET).count() == 2
    assert CANARY not in text_columns()


def test_one_that_is_refused_leaves_nothing_and_the_others_are_stored(admin: Any) -> None:
    outcomes = imported(
        admin, {"bad": {"url": "ftp://x.example/"}, "good": {"url": "https://x.example/"}, "late": {"command": "npx"}}
    )
    assert [outcome.result for outcome in outcomes] == ["refused", "created", "created"]
    assert sorted(Server.objects.values_list("name", flat=True)) == ["good", "late"]


def test_a_database_that_fails_for_one_server_keeps_the_others(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError  # noqa: PLC0415 - beside its use

    write = registering.write_values

    def failing(server: Server, given: Any) -> Any:
        if server.name == "two":
            raise OperationalError("database is locked")
        return write(server, given)

    monkeypatch.setattr(registering, "write_values", failing)
    urls = {name: {"url": f"https://{name}.example/"} for name in ("one", "two", "three")}
    outcomes = imported(admin, urls)
    assert [outcome.result for outcome in outcomes] == ["created", "refused", "created"]
    assert sorted(Server.objects.values_list("name", flat=True)) == ["one", "three"]
    assert "Nothing was saved" in outcomes[1].words


def test_a_command_needs_permission_to_register_commands(operator: Any) -> None:
    """The preview refuses it. A forged decision is refused by the registration and audited."""
    servers = {"files": {"command": "npx"}}
    document = read(json.dumps(servers))
    (proposal,) = plan(operator, document)
    assert (proposal.verdict, "register commands" in proposal.reasons[0]) == (Plan.REFUSE, True)
    assert [outcome.result for outcome in imported(operator, servers)] == ["refused"]
    assert not Server.objects.exists()

    forced = [type(proposal)(0, proposal.entry, Plan.CREATE, proposal.registration)]
    decided = {0: Decision(Choice.CREATE)}
    (outcome,) = apply(Actor.of_user(operator), operator, document, forced, decided)
    assert (outcome.result, Server.objects.exists()) == ("refused", False)
    denied = AuditEvent.objects.get(action=AuditAction.PERMISSION_DENY)
    assert (denied.outcome, denied.subject) == (AuditOutcome.DENIED, "files")


def test_turning_a_server_into_a_command_needs_the_permission_too(admin: Any, operator: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(name="files"))
    (outcome,) = imported(operator, {"files": {"command": "npx"}}, {0: Decision(Choice.OVERWRITE, version=1)})
    server.refresh_from_db()
    assert (outcome.result, server.command) == ("refused", "")


def test_overwriting_needs_permission_to_change(admin: Any, actor: Actor) -> None:
    registering.register(actor, admin, over_http(name="files"))
    adder = person("abel", "view_server", "add_server")
    (outcome,) = imported(adder, {"files": {"url": "https://x.example/"}}, {0: Decision(Choice.OVERWRITE, version=1)})
    assert (outcome.result, Server.objects.get().url) == ("refused", "https://mcp.example.com/mcp")


# --- conflicts ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def stored(admin: Any, actor: Actor) -> Server:
    return registering.register(actor, admin, over_http(name="orders", notes="kept", tags=["a"], values=[header()]))


NEW = {"orders": {"url": "https://mcp.example.com/v2", "headers": {"X-Region": "eu"}}}


def test_a_conflict_is_skipped_unless_someone_decides(admin: Any, stored: Server) -> None:
    (outcome,) = imported(admin, NEW, {0: Decision(Choice.SKIP)})
    stored.refresh_from_db()
    assert (outcome.result, stored.version, stored.url) == ("skipped", 1, "https://mcp.example.com/mcp")


def test_overwriting_changes_what_the_file_states_and_keeps_the_rest(admin: Any, stored: Server) -> None:
    (outcome,) = imported(admin, NEW, {0: Decision(Choice.OVERWRITE, version=1)})
    stored.refresh_from_db()
    assert (outcome.result, outcome.slug) == ("changed", "orders")
    assert (stored.url, stored.notes, stored.tags) == ("https://mcp.example.com/v2", "kept", ["a"])
    assert stored.transport == "streamable_http"  # a bare URL does not name a transport
    assert [value.name for value in stored.values.all()] == ["X-Region"]


@pytest.mark.parametrize(
    ("verb", "disabled", "words"),
    [
        (None, False, ""),
        (None, True, "The stored server is enabled. The import does not disable it."),
        (registering.disable, False, "The stored server is disabled. The import does not enable it."),
        (registering.disable, True, ""),
        (registering.archive, True, "The stored server is archived. The import does not restore it."),
    ],
)
def test_an_overwrite_that_leaves_a_server_disabled_or_archived_says_so(
    verb: Any, disabled: bool, words: str, admin: Any, actor: Actor, stored: Server
) -> None:
    if verb is not None:
        verb(actor, admin, stored)
        stored.refresh_from_db()
    file = {"orders": NEW["orders"] | ({"disabled": True} if disabled else {})}
    (proposal,) = plan(admin, read(json.dumps({"mcpServers": file})))
    assert proposal.kept_state == words
    (outcome,) = imported(admin, file, {0: Decision(Choice.OVERWRITE, version=stored.version)})
    assert (outcome.result, outcome.words) == ("changed", words)


def test_a_server_that_changed_since_the_preview_is_not_overwritten(admin: Any, actor: Actor, stored: Server) -> None:
    registering.change(actor, admin, stored, over_http(name="orders", url="https://mcp.example.com/late"), 1)
    (outcome,) = imported(admin, NEW, {0: Decision(Choice.OVERWRITE, version=1)})
    assert (outcome.result, "changed by someone else" in outcome.words) == ("refused", True)
    assert Server.objects.get().url == "https://mcp.example.com/late"


def test_a_server_that_came_in_the_place_of_the_previewed_one_is_not_overwritten(
    admin: Any, actor: Actor, stored: Server
) -> None:
    previewed = stored.uid
    registering.delete(actor, admin, stored)
    other = registering.register(actor, admin, over_http(name="orders", url="https://other.example/mcp"))
    (outcome,) = imported(admin, NEW, {0: Decision(Choice.OVERWRITE, version=1, uid=previewed)})
    assert (outcome.result, "orders has taken its place" in outcome.words) == ("refused", True)
    assert Server.objects.get().url == "https://other.example/mcp"
    (outcome,) = imported(admin, NEW, {0: Decision(Choice.OVERWRITE, version=1, uid=other.uid)})
    assert outcome.result == "changed"


def test_renaming_creates_a_second_server(admin: Any, stored: Server) -> None:
    (outcome,) = imported(admin, NEW, {0: Decision(Choice.RENAME, "orders two")})
    assert (outcome.result, outcome.slug, Server.objects.count()) == ("created", "orders-two", 2)


@pytest.mark.parametrize("name", ["orders", "ORDERS", "", "x" * 121])
def test_a_name_that_cannot_be_had_is_refused(name: str, admin: Any, stored: Server) -> None:
    (outcome,) = imported(admin, NEW, {0: Decision(Choice.RENAME, name)})
    assert (outcome.result, Server.objects.count()) == ("refused", 1)


def test_a_name_that_this_import_gave_away_cannot_be_had_again(admin: Any) -> None:
    files = {"a": {"url": "https://a.example/mcp"}, "b": {"url": "https://b.example/mcp"}}
    decided = {0: Decision(Choice.CREATE), 1: Decision(Choice.RENAME, "A")}
    assert [outcome.result for outcome in imported(admin, files, decided)] == ["created", "refused"]
    assert Server.objects.count() == 1


def test_a_preview_of_one_known_server_and_of_twenty_needs_the_same_number_of_queries(admin: Any, actor: Actor) -> None:
    values = [header(), header("X-Region", "us", secret=False)]
    for number in range(20):
        registering.register(actor, admin, over_http(name=f"s{number}", values=values))
    headers = {"Authorization": "${input:token}", "X-Region": "eu", "X-Team": "${TEAM}"}
    files = {f"s{number}": {"url": "https://mcp.example.com/mcp", "headers": headers} for number in range(20)}
    counts = []
    for servers in ({"s0": files["s0"]}, files):
        document = read(json.dumps({"mcpServers": servers}))
        plan(admin, document)  # permissions are read once for each person
        with CaptureQueriesContext(connection) as captured:
            proposals = plan(admin, document)
        assert {proposal.verdict for proposal in proposals} == {Plan.CHANGE}
        counts.append(len(captured))
    assert counts[0] == counts[1]


def test_a_stored_secret_never_follows_an_imported_address(admin: Any, stored: Server) -> None:
    moved = {"orders": {"url": "https://elsewhere.example/mcp", "headers": {"Authorization": "${input:token}"}}}
    (outcome,) = imported(admin, moved, {0: Decision(Choice.OVERWRITE, version=1)})
    assert (outcome.result, outcome.needed) == ("changed", ["Authorization"])
    with pytest.raises(SealError, match="has no value"):
        launch_values(Server.objects.get())


def test_a_secret_that_the_file_leaves_out_stays_at_the_same_address(admin: Any, stored: Server) -> None:
    same = {"orders": {"url": "https://mcp.example.com/v2", "headers": {"Authorization": "${input:token}"}}}
    (outcome,) = imported(admin, same, {0: Decision(Choice.OVERWRITE, version=1)})
    assert (outcome.result, outcome.needed) == ("changed", [])
    assert launch_values(Server.objects.get()).headers["Authorization"].reveal() == CANARY  # type: ignore[union-attr]  # a Secret


# --- values that are needed --------------------------------------------------------------------------------------------
def test_a_server_whose_value_is_needed_is_disabled_and_says_what_is_missing(admin: Any, actor: Actor) -> None:
    raw = {"notes": {"url": "https://notes.example/mcp", "headers": {"Authorization": "Bearer ${input:token}"}}}
    (outcome,) = imported(admin, raw)
    server = Server.objects.get()
    assert (outcome.needed, server.enabled) == (["Authorization"], False)
    with pytest.raises(SealError, match="Authorization has no value"):
        launch_values(server)
    with pytest.raises(ValidationError, match="Enter the value of Authorization"):
        registering.clone(actor, admin, server)
    data = registering.Registration.of_server(server)
    entered = [type(value)(value.kind, value.name, True, Secret(CANARY)) for value in data.values]
    registering.change(actor, admin, server, type(data)(**{**vars(data), "values": entered}), 1)
    assert launch_values(Server.objects.get()).headers["Authorization"].reveal() == CANARY  # type: ignore[union-attr]  # a Secret


def test_a_value_that_is_entered_in_the_preview_is_sealed(admin: Any) -> None:
    raw = {"notes": {"url": "https://notes.example/mcp", "headers": {"Authorization": "Bearer ${input:token}"}}}
    (outcome,) = imported(admin, raw, {0: Decision(Choice.CREATE, typed={"input:token": CANARY})})
    assert (outcome.needed, Server.objects.get().enabled) == ([], True)
    assert launch_values(Server.objects.get()).headers["Authorization"].reveal() == f"Bearer {CANARY}"  # type: ignore[union-attr]  # a Secret
    assert CANARY not in text_columns()


# --- the held preview --------------------------------------------------------------------------------------------------
def test_a_preview_rests_sealed_and_is_forgotten_when_all_of_it_is_applied(admin: Any) -> None:
    text = json.dumps({"a": {"command": CANARY}})
    draft = stored_preview.hold(admin, text)
    assert CANARY not in text_columns()
    assert stored_preview.text_of(ServerDraft.objects.get()) == text
    stored_preview.settle(draft, [ImportOutcome("a", "created", slug="a")])
    assert stored_preview.text_of(ServerDraft.objects.get()) == ""


def test_a_preview_with_a_refused_server_is_kept_for_another_try(admin: Any) -> None:
    draft = stored_preview.hold(admin, "{}")
    stored_preview.settle(draft, [ImportOutcome("a", "refused", "why"), ImportOutcome("b", "created")])
    kept = ServerDraft.objects.get()
    assert stored_preview.text_of(kept) == "{}"
    assert [outcome.result for outcome in stored_preview.outcomes_of(kept)] == ["refused", "created"]


def test_what_an_earlier_try_stored_stays_in_the_result(admin: Any) -> None:
    draft = stored_preview.hold(admin, "{}")
    stored_preview.settle(draft, [ImportOutcome("a", "created", slug="a"), ImportOutcome("b", "refused", "why")])
    draft.refresh_from_db()
    stored_preview.settle(draft, [ImportOutcome("a", "unchanged"), ImportOutcome("b", "changed", slug="b")])
    draft.refresh_from_db()
    assert [(one.result, one.slug) for one in stored_preview.outcomes_of(draft)] == [("created", "a"), ("changed", "b")]
    assert stored_preview.text_of(draft) == ""


def test_a_preview_is_applied_once(admin: Any) -> None:
    draft = stored_preview.hold(admin, "{}")
    assert [stored_preview.claim(draft, draft.version), stored_preview.claim(draft, draft.version)] == [True, False]


def test_a_user_holds_a_few_previews_at_most(admin: Any, operator: Any) -> None:
    other = stored_preview.hold(operator, "{}")
    drafts = [stored_preview.hold(admin, "{}") for _ in range(7)]
    assert set(ServerDraft.objects.filter(user=admin)) == set(drafts[-5:])
    assert ServerDraft.objects.filter(pk=other.pk).exists()


def test_no_worker_takes_a_preview_for_a_test(admin: Any) -> None:
    from sessions.host.tick import waiting_drafts  # noqa: PLC0415 - only this test needs the host

    stored_preview.hold(admin, "{}")
    assert waiting_drafts([]) == []


def test_the_demo_of_a_stdio_server_imports_over_http_by_its_words_alone(admin: Any, actor: Actor) -> None:
    """Overwriting a command with a URL also changes the transport."""
    registering.register(actor, admin, over_stdio(name="files"))
    raw = {"files": {"url": "https://files.example/mcp"}}
    (outcome,) = imported(admin, raw, {0: Decision(Choice.OVERWRITE, version=1)})
    server = Server.objects.get()
    assert (outcome.result, server.transport, server.command) == ("changed", "auto_http", "")
