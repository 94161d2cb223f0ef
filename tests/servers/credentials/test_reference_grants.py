"""A reference is used by whom it was granted to by name: at every door that saves one, and again at each launch."""

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client

from servers import access
from servers.accounts import people
from servers.audit.record import Actor
from servers.configuration import Registration
from servers.credentials import reference_grants, vault
from servers.credentials.kinds import Parts
from servers.enums import AuditAction, CredentialKind, TransportKind
from servers.models import AuditEvent, Credential, ReferenceGrant, Server
from servers.registration import drafts, registering
from servers.registration.importing.applying import Choice, Decision, apply
from servers.registration.importing.document import read
from servers.registration.importing.planning import plan
from servers.registration.reference_permissions import references_in
from servers.registration.resolved_values import NotLaunchable, draft_launch_values, launch_values
from servers.secret import Secret
from servers.signals import server_changed
from tests.servers.cast import create_draft, header, over_http, over_stdio, variable
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
VALUE, IN_FILE = "canary-of-the-operator-31", "canary-of-a-file-32"
OWN_URL = "https://collects.example/mcp"
REFUSED = "each reference is granted by name"


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> Path:
    monkeypatch.setenv("MCP_TOKEN", VALUE)
    monkeypatch.setenv("MCP_OTHER", "another-value-33")
    (tmp_path / "token").write_text(IN_FILE)
    settings.REFERENCE_FOLDERS = [str(tmp_path)]
    return tmp_path


@pytest.fixture
def eve(db: None) -> Any:
    """Registers servers and commands, and was granted nothing."""
    return person(
        "eve", "view_server", "add_server", "change_server", "manage_stdio", "view_credential", "manage_credential"
    )


@pytest.fixture
def granted(admin: Any, actor: Actor) -> Callable[[str, Any], ReferenceGrant]:
    return lambda name, to: reference_grants.grant(actor, admin, name, to)


def who(user: Any) -> tuple[Actor, Any]:
    return Actor.of_user(user), user


def sent(server: Server) -> str:
    value = launch_values(server).headers["Authorization"]
    return value.reveal() if isinstance(value, Secret) else value


# --- doors -------------------------------------------------------------------------------------------------------------
PLACES: dict[str, Callable[[str], Registration]] = {
    "header": lambda text: over_http(url=OWN_URL, values=[header("X-A", text, secret=False)]),
    "sealed header": lambda text: over_http(url=OWN_URL, values=[header("X-A", text)]),
    "url": lambda text: over_http(url=f"{OWN_URL}?a={text}"),
    "variable": lambda text: over_stdio(values=[variable("A", text, secret=False)]),
    "sealed variable": lambda text: over_stdio(values=[variable("A", text)]),
    "argument": lambda text: over_stdio(arguments=["--a", text]),
    "working directory": lambda text: over_stdio(working_directory=text),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["MCP_TOKEN", "file:{}/token"])
def test_a_reference_that_was_not_granted_is_saved_nowhere_and_sent_to_no_address_of_ones_own(
    place: str, name: str, eve: Any, offered: Path
) -> None:
    data = PLACES[place](f"${{{name.format(offered)}}}")
    doors: list[Callable[[], object]] = [
        lambda: registering.register(*who(eve), data),
        lambda: create_draft(*who(eve), data),
    ]
    for door in doors:
        with pytest.raises(ValidationError, match=REFUSED):
            door()
    assert not Server.objects.exists()
    denied = AuditEvent.objects.filter(action=AuditAction.PERMISSION_DENY, actor_name="eve")
    assert {tuple(json.loads(event.body)["details"]["references"]) for event in denied} == {(name.format(offered),)}


@pytest.mark.parametrize("place", PLACES)
def test_what_was_granted_is_used_in_every_place(place: str, eve: Any, granted: Any, offered: Path) -> None:
    name = "MCP_TOKEN" if place != "working directory" else f"file:{offered}/folder"
    (offered / "folder").write_text("/srv/data")
    granted(name, eve)
    found = launch_values(registering.register(*who(eve), PLACES[place](f"${{{name}}}")))
    assert [secret.reveal() for secret in found.secrets] == [VALUE if name == "MCP_TOKEN" else "/srv/data"]


def test_a_grant_is_of_one_name_and_of_no_other(eve: Any, granted: Any, offered: Path) -> None:
    granted("MCP_TOKEN", eve)
    granted(f"file:{offered}/token", eve)
    for name in ("MCP_OTHER", "mcp_token", f"file:{offered}/./token", f"file:{offered}/x/../token"):
        with pytest.raises(ValidationError, match=REFUSED):
            registering.register(*who(eve), PLACES["header"](f"${{{name}}}"))


def test_a_group_passes_its_grants_to_its_members_alone(eve: Any, granted: Any) -> None:
    group = Group.objects.create(name="integrators")
    granted("MCP_TOKEN", group)
    data = over_http(values=[header("Authorization", "${MCP_TOKEN}", secret=False)])
    with pytest.raises(ValidationError, match=REFUSED):
        registering.register(*who(eve), data)
    eve.groups.add(group)
    server = registering.register(*who(eve), data)
    assert sent(server) == VALUE
    eve.groups.clear()
    with pytest.raises(NotLaunchable, match="not granted"):
        launch_values(Server.objects.get())


@pytest.mark.parametrize(
    "moved",
    [
        {"url": OWN_URL},
        {"url": "https://mcp.example.com/other"},
        {"worker_label": "elsewhere"},
        {"values": [header("X-Other", "${MCP_TOKEN}", secret=False)]},
        {"values": [header("Authorization", "${MCP_TOKEN}", secret=False), header("X-B", "b", secret=False)]},
        {"transport": TransportKind.WEBSOCKET, "url": "wss://mcp.example.com/mcp"},
    ],
    ids=["host", "path", "worker", "header", "another header", "transport"],
)
def test_who_may_change_a_server_does_not_move_where_another_persons_reference_goes(
    moved: dict[str, Any], admin: Any, actor: Actor, eve: Any
) -> None:
    data = over_http(values=[header("Authorization", "${MCP_TOKEN}", secret=False)])
    server = registering.register(actor, admin, data)
    with pytest.raises(ValidationError, match=REFUSED):
        registering.change(*who(eve), server, replace(data, **moved), server.version)
    assert sent(Server.objects.get()) == VALUE


def test_a_kept_secret_that_is_a_reference_is_not_moved_either(admin: Any, actor: Actor, eve: Any) -> None:
    data = over_http(values=[header("Authorization", "${MCP_TOKEN}")])
    server = registering.register(actor, admin, data)
    kept = replace(data, url="https://mcp.example.com/other", values=[header("Authorization", None)])
    with pytest.raises(ValidationError, match=REFUSED):
        registering.change(*who(eve), server, kept, server.version)
    with pytest.raises(ValidationError, match=REFUSED):
        create_draft(*who(eve), kept, server)


def test_what_does_not_move_it_is_changed_by_anyone_who_may_and_the_same_person_answers(
    admin: Any, actor: Actor, eve: Any
) -> None:
    data = over_http(values=[header("Authorization", "${MCP_TOKEN}"), header("X-B", "${MCP_OTHER}", secret=False)])
    server = registering.register(actor, admin, data)
    kept = replace(data, description="Another one", tags=["x"], values=[header("Authorization", None), data.values[1]])
    changed = registering.change(*who(eve), server, kept, server.version)
    assert (changed.description, changed.references_by) == ("Another one", admin)
    assert sent(changed) == VALUE


def test_a_copy_needs_the_grants_of_the_person_who_copies(admin: Any, actor: Actor, eve: Any, granted: Any) -> None:
    data = over_http(values=[header("Authorization", "${MCP_TOKEN}")])
    server = registering.register(actor, admin, data)
    with pytest.raises(ValidationError, match=REFUSED):
        registering.clone(*who(eve), server)
    granted("MCP_TOKEN", eve)
    assert registering.clone(*who(eve), server).references_by == eve


def test_an_import_says_in_its_preview_that_a_reference_was_not_granted(eve: Any, granted: Any) -> None:
    document = read(json.dumps({"mcpServers": {"x": {"url": OWN_URL, "headers": {"A": "${MCP_TOKEN}"}}}}))
    (proposal,) = plan(eve, document)
    assert REFUSED in " ".join(proposal.reasons)
    (outcome,) = apply(*who(eve), document, [proposal], {0: Decision(Choice.CREATE)})
    assert (outcome.result, Server.objects.count()) == ("refused", 0)
    granted("MCP_TOKEN", eve)
    (outcome,) = apply(*who(eve), document, plan(eve, document), {0: Decision(Choice.CREATE)})
    assert outcome.result == "created"


def test_a_credential_based_on_a_reference_needs_the_grant_too(
    eve: Any, granted: Any, admin: Any, actor: Actor
) -> None:
    details = {"client": "robot", "issuer": "https://mine.example", "token": "${MCP_TOKEN}"}
    parts = Parts(CredentialKind.WORKLOAD, details)
    with pytest.raises(ValidationError, match=REFUSED):
        vault.create(*who(eve), "Mine", parts, OWN_URL)
    made = vault.create(actor, admin, "Platform", parts, OWN_URL)
    with pytest.raises(ValidationError, match=REFUSED):
        vault.replace(*who(eve), made, replace(parts, details=details | {"issuer": "https://other.example"}))
    server = registering.register(*who(eve), over_http(url=OWN_URL))
    vault.attach(*who(eve), server, made)
    assert launch_values(server).account is not None
    Credential.objects.update(references_by=eve)
    with pytest.raises(NotLaunchable, match="not granted") as refused:
        launch_values(server)
    assert refused.value.fault == "reference_refused"


def test_commands_of_the_operator_follow_the_same_rule(eve: Any) -> None:
    options = ["--user", "eve", "--name", "X", "--url", OWN_URL, "--header", "A=${MCP_TOKEN}"]
    with pytest.raises(CommandError, match=REFUSED):
        call_command("register_server", *options, stdout=StringIO())


# --- at the launch -----------------------------------------------------------------------------------------------------
def test_a_launch_resolves_only_what_the_person_who_answers_holds_now(
    eve: Any, granted: Any, admin: Any, actor: Actor
) -> None:
    grant = granted("MCP_TOKEN", eve)
    data = over_http(values=[header("Authorization", "${MCP_TOKEN}", secret=False)])
    server = registering.register(*who(eve), data)
    assert sent(server) == VALUE
    reference_grants.revoke(actor, admin, grant)
    with pytest.raises(NotLaunchable, match=r"Authorization: \$\{MCP_TOKEN\} is not granted") as refused:
        launch_values(Server.objects.get())
    assert refused.value.fault == "reference_refused"
    registering.change(actor, admin, Server.objects.get(), data, server.version)
    assert sent(Server.objects.get()) == VALUE, "a person who holds the grant takes over by saving"


@pytest.mark.parametrize("fields", [{"is_active": False}, {"is_superuser": False}])
def test_an_account_that_is_disabled_or_loses_its_rank_answers_for_nothing(
    fields: dict[str, bool], admin: Any, actor: Actor
) -> None:
    data = over_http(values=[header("Authorization", "${MCP_TOKEN}", secret=False)])
    registering.register(actor, admin, data)
    type(admin).objects.update(**fields)
    with pytest.raises(NotLaunchable, match="not granted"):
        launch_values(Server.objects.get())


def test_a_row_that_no_door_let_in_is_not_resolved(eve: Any, offered: Path) -> None:
    server = registering.register(*who(eve), over_http(url=OWN_URL))
    server.values.create(kind="header", name="A", plain=f"${{file:{offered}/token}}")
    with pytest.raises(NotLaunchable, match="not granted"):
        launch_values(server)
    Server.objects.update(url=f"{OWN_URL}?a=${{MCP_TOKEN}}")
    server.values.all().delete()
    with pytest.raises(NotLaunchable, match=r"URL: .* not granted"):
        launch_values(Server.objects.get())


def test_a_draft_resolves_what_its_author_holds_now(eve: Any, granted: Any, admin: Any, actor: Actor) -> None:
    grant = granted("MCP_TOKEN", eve)
    draft = create_draft(*who(eve), over_stdio(arguments=["${MCP_TOKEN}"]))
    assert draft_launch_values(drafts.open_draft(draft), user=draft.user).reached.arguments == (VALUE,)
    reference_grants.revoke(actor, admin, grant)
    with pytest.raises(NotLaunchable, match="not granted"):
        draft_launch_values(drafts.open_draft(draft), user=draft.user)


def test_a_variable_of_the_server_itself_is_no_reference_and_needs_no_grant(eve: Any) -> None:
    data = over_stdio(arguments=["--token", "${API_TOKEN}", "$${MCP_TOKEN}"], values=[variable()])
    assert references_in(data) == []
    assert launch_values(registering.register(*who(eve), data)).reached.arguments[2] == "${MCP_TOKEN}"


# --- granting ----------------------------------------------------------------------------------------------------------
def test_only_who_may_grant_grants_and_it_is_recorded(eve: Any, admin: Any, actor: Actor) -> None:
    with pytest.raises(access.Denied, match="grant references"):
        reference_grants.grant(*who(eve), "MCP_TOKEN", eve)
    first = reference_grants.grant(actor, admin, "${MCP_TOKEN}", eve)
    assert reference_grants.grant(actor, admin, "MCP_TOKEN", eve) == first
    event = AuditEvent.objects.get(action=AuditAction.REFERENCE_GRANT)
    assert (event.subject, json.loads(event.body)["details"]) == ("MCP_TOKEN", {"to": "eve"})
    with pytest.raises(access.Denied):
        reference_grants.revoke(*who(eve), first)
    reference_grants.revoke(actor, admin, first)
    assert AuditEvent.objects.get(action=AuditAction.REFERENCE_REVOKE).subject == "MCP_TOKEN"


def test_the_grants_of_a_group_end_with_it_as_if_they_were_removed(
    eve: Any, admin: Any, actor: Actor, granted: Any, django_capture_on_commit_callbacks: Any
) -> None:
    deploy, heard = Group.objects.create(name="deploy"), []
    eve.groups.add(deploy)
    names = ["MCP_OTHER", "MCP_TOKEN"]
    for name in names:
        granted(name, deploy)
    headers = [header(f"X-{name}", f"${{{name}}}", secret=False) for name in names]
    server = registering.register(*who(eve), over_http(values=headers))

    def hear(server_uid: Any, reconnect: bool = False, **_: Any) -> None:
        heard.append((server_uid, reconnect))

    server_changed.connect(hear)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            people.delete_group(actor, admin, deploy)
    finally:
        server_changed.disconnect(hear)
    assert heard == [(server.uid, True)]
    events = AuditEvent.objects.filter(action=AuditAction.REFERENCE_REVOKE).order_by("subject")
    assert [event.subject for event in events] == names
    assert json.loads(events[0].body)["details"] == {"from": "group deploy"}


@pytest.mark.parametrize("name", ["", "*", "MCP_*", "A B", "${A}${B}", "file:", "x" * 2000, "file:/a\nb"])
def test_what_is_no_name_of_one_reference_is_not_granted(name: str, admin: Any, actor: Actor, eve: Any) -> None:
    with pytest.raises(ValidationError, match="Enter one reference"):
        reference_grants.grant(actor, admin, name, eve)


def test_the_page_grants_removes_and_lists_which_servers_wait(admin: Any, actor: Actor, eve: Any, granted: Any) -> None:
    grant = granted("MCP_TOKEN", eve)
    registering.register(*who(eve), over_http(values=[header("Authorization", "${MCP_TOKEN}", secret=False)]))
    client = Client()
    client.force_login(admin)
    assert "Waiting for a grant" not in client.get("/credentials/references/").content.decode()
    asked = client.get(f"/credentials/references/{grant.uid}/revoke/").content.decode()
    assert "Sessions that might use the reference reconnect" in asked
    assert ReferenceGrant.objects.filter(pk=grant.pk).exists(), "it only asks"
    removed = client.post(f"/credentials/references/{grant.uid}/revoke/", follow=True).content.decode()
    assert "${MCP_TOKEN} is no longer granted to eve" in removed
    assert "Waiting for a grant" in removed
    assert f"?name=MCP_TOKEN&amp;to=user:{eve.pk}" in removed
    again = client.post("/credentials/references/", {"name": "MCP_TOKEN", "to": f"user:{eve.pk}"}, follow=True)
    assert "Waiting for a grant" not in again.content.decode()
    refused = client.post("/credentials/references/", {"name": "MCP_*", "to": f"user:{eve.pk}"})
    assert (refused.status_code, "Enter one reference" in refused.content.decode()) == (422, True)


def test_one_grant_and_three_need_the_same_number_of_queries(
    admin: Any, granted: Any, eve: Any, django_assert_max_num_queries: Any
) -> None:
    for number in range(3):
        granted(f"MCP_{number}", eve)
    with django_assert_max_num_queries(1):
        assert [row.holder for row in reference_grants.rows()] == ["eve"] * 3


def test_one_server_that_waits_and_twenty_need_the_same_number_of_queries(
    eve: Any, granted: Any, django_assert_num_queries: Any
) -> None:
    grants = [granted(name, eve) for name in ("MCP_TOKEN", "MCP_OTHER")]
    for number in range(20):
        values = [header("Authorization", "${MCP_TOKEN} ${MCP_OTHER}", secret=False)]
        server = registering.register(*who(eve), over_http(name=f"s{number}", values=values))
        if number % 2:
            ReferenceGrant.objects.create(name="MCP_OTHER", server=server)
    ReferenceGrant.objects.filter(pk__in=[grant.pk for grant in grants]).delete()
    for servers in (Server.objects.filter(name="s1"), Server.objects.all()):
        with django_assert_num_queries(4):  # servers with their people, values, grants of servers, of the one person
            refused = reference_grants.refused_now(servers)
        assert {tuple(one.names) for one in refused if int(one.server.name[1:]) % 2} == {("MCP_TOKEN",)}
    assert [one.names for one in refused if one.server.name == "s0"] == [["MCP_OTHER", "MCP_TOKEN"]]


def test_the_command_grants_lists_and_revokes(admin: Any, eve: Any) -> None:
    def run(*options: str) -> str:
        out = StringIO()
        call_command("grant_reference", *options, stdout=out)
        return out.getvalue()

    assert "granted to eve" in run("MCP_TOKEN", "--user", "ada", "--to", "eve")
    assert run() == "MCP_TOKEN: eve\n"
    with pytest.raises(CommandError, match="grant references"):
        run("MCP_OTHER", "--user", "eve", "--to", "eve")
    assert "no longer granted" in run("MCP_TOKEN", "--user", "ada", "--to", "eve", "--revoke")
    with pytest.raises(CommandError, match="grant does not exist"):
        run("MCP_TOKEN", "--user", "ada", "--to", "eve", "--revoke")
    with pytest.raises(CommandError, match="no group"):
        run("MCP_TOKEN", "--user", "ada", "--to-group", "none")
