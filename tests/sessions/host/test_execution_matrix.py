"""Kind of credential x way in x permission: a variable that makes programs run code is set by nobody but a person who
may register commands. Proved by an execve trace of what each row of the database would start afterwards.

The victim is a script that starts the usual interpreters. Each dangerous variable makes one of them run a marker.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from servers import crypto
from servers.audit.record import Actor
from servers.configuration import Registration, ValueInput
from servers.credentials import vault
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind, IdentityKind, SignsInAs, TransportKind, ValueKind
from servers.models import Credential, CredentialUse, Identity, Server, ServerDraft
from servers.registration import registering
from servers.registration.importing.applying import Choice, Decision, apply
from servers.registration.importing.document import read
from servers.registration.importing.planning import plan
from servers.secret import Secret
from sessions.connections import commands
from sessions.host.launch import Launch, load, load_draft
from sessions.host.launch_problem import LaunchProblem
from sessions.live import consumer
from sessions.mcp.transports.registry import StdioSpec
from sessions.models import McpSession
from tests.servers.cast import create_draft
from tests.servers.conftest import person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]
SCRIPT = """\
uname >/dev/null
bash -c :
sh -ic :
bash -lc :
python3 -c pass
perl -e 1
node -e 0
git ls-remote ssh://127.0.0.1/x
"""
PERMISSIONS = {
    "call tools": ("call_tool",),
    "manage credentials": ("view_credential", "manage_credential"),
    "change servers and manage credentials": ("change_server", "view_credential", "manage_credential"),
    "everything but commands": (
        *("add_server", "change_server", "delete_server", "call_tool", "view_credential", "manage_credential"),
        *("manage_subscription", "answer_question", "grant_reference"),
    ),
    "register commands": (
        *("add_server", "change_server", "call_tool", "view_credential", "manage_credential", "manage_stdio"),
    ),
}
APPROVED = "register commands"
#: the permission that allows it, and all that do not; each alone is long
SHORT = (APPROVED, "everything but commands")


@dataclass(frozen=True)
class Trap:
    """`variables`: what makes each program run the marker, by the name that is tried."""

    folder: Path
    marker: str
    variables: dict[str, str]


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Trap:
    folder = tmp_path_factory.mktemp("trap")
    marker = folder / "marker"
    marker.write_text("#!/bin/sh\nexit 0\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "uname").write_text(f"#!/bin/sh\nexec {marker}\n")
    for program in (marker, folder / "bin" / "uname"):
        program.chmod(0o755)
    (folder / "script").write_text(SCRIPT)
    (folder / "rc").write_text(f"{marker}\n")
    (folder / ".bash_profile").write_text(f"{marker}\n")
    (folder / "sitecustomize.py").write_text(f"import os\nos.system({str(marker)!r})\n")
    (folder / "Evil.pm").write_text(f"package Evil; system('{marker}'); 1;\n")
    (folder / "evil.js").write_text(f"require('child_process').spawnSync({str(marker)!r})\n")
    variables = {
        "BASH_ENV": f"{folder}/rc",
        "ENV": f"{folder}/rc",
        "HOME": f"{folder}",
        "PATH": f"{folder}/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"{folder}",
        "PERL5OPT": f"-I{folder} -MEvil",
        "NODE_OPTIONS": f"--require={folder}/evil.js",
        "GIT_SSH_COMMAND": str(marker),
    }
    needs = {"NODE_OPTIONS": "node", "PERL5OPT": "perl", "GIT_SSH_COMMAND": "git", "BASH_ENV": "bash", "HOME": "bash"}
    return Trap(folder, str(marker), {n: v for n, v in variables.items() if shutil.which(needs.get(n, "sh"))})


@cache
def _traced(command: tuple[str, ...], environment: tuple[tuple[str, str], ...], folder: str) -> str:
    """The programs that the command and its descendants started, as strace wrote them. The variables are set for the
    command and not for strace."""
    log = Path(folder) / "trace"
    given = [word for name, value in environment for word in ("-E", f"{name}={value}")]
    strace = ["strace", "-f", "-qq", "-e", "trace=execve", "-s", "500", "-o", str(log), *given, *command]
    base = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    subprocess.run(strace, env=base, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False, cwd=folder)
    found = log.read_text()
    assert "execve(" in found, "strace traced nothing"
    return found


def executions(trap: Trap, launch: Launch) -> int:
    """How often the marker ran."""
    spec = launch.spec
    assert isinstance(spec, StdioSpec)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C"} | dict(spec.env())
    traced = _traced((spec.command, *spec.args), tuple(sorted(environment.items())), str(trap.folder))
    return traced.count(f'execve("{trap.marker}"')


# --- the world ---------------------------------------------------------------------------------------------------------
class World:
    """A stdio server whose registration leaves API_TOKEN to credentials, and a person who tries."""

    def __init__(self, trap: Trap, admin: Any, permissions: Iterable[str]) -> None:
        self.trap, self.admin = trap, admin
        self.user = person("eve", "view_server", *permissions)
        self.actor = Actor.of_user(self.user)
        self.server = self._registered("Victim")
        self.client = Client()
        self.client.force_login(self.user)
        self.unknown = 0

    def registration(self, name: str, *values: ValueInput) -> Registration:
        return Registration(
            name=name,
            transport=TransportKind.STDIO,
            command="/bin/sh",
            arguments=[f"{self.trap.folder}/script"],
            signs_in_as=SignsInAs.EITHER,
            values=[ValueInput(ValueKind.ENVIRONMENT, "API_TOKEN", True, Secret("of-the-registration")), *values],
        )

    def _registered(self, name: str) -> Server:
        return registering.register(Actor.of_user(self.admin), self.admin, self.registration(name))

    def stored(self, variable: str, value: str, name: str = "") -> Credential:
        """A credential stored by an administrator."""
        self.unknown += 1
        name = name or f"Stored {self.unknown}"
        return vault.create(Actor.of_user(self.admin), self.admin, name, of_variable(variable, value))

    def launches(self) -> Iterator[Launch]:
        """Everything that a worker could start from the rows as they are now."""
        servers = Server.objects.filter(transport=TransportKind.STDIO)
        sessions = [commands.session_of(one, server) for server in servers for one in server.identities.all()]
        stored = ServerDraft.objects.filter(transport=TransportKind.STDIO)
        loads = [
            *(partial(load, session.pk) for session in sessions),
            *(partial(load_draft, one.uid) for one in stored),
        ]
        for loaded in loads:
            with suppress(LaunchProblem):
                yield loaded()


def of_variable(variable: str, value: str) -> Parts:
    return Parts(CredentialKind.ENVIRONMENT, {"variable": variable}, {"value": Secret(value)})


def row(variable: str, value: str, *, secret: bool) -> ValueInput:
    return ValueInput(ValueKind.ENVIRONMENT, variable, secret, Secret(value) if secret else value)


# --- ways in -----------------------------------------------------------------------------------------------------------
# Each tries to have the variable set. A refusal is fine, and so is success without effect: the trace decides.
Way = Callable[[World, str, str], Any]


def register(world: World, variable: str, value: str, *, secret: bool = False) -> Any:
    data = world.registration(f"New {variable}", row(variable, value, secret=secret))
    return registering.register(world.actor, world.user, data)


def edit(world: World, variable: str, value: str, *, secret: bool = False) -> Any:
    current = Server.objects.get(pk=world.server.pk)
    kept = Registration.of_server(current)
    data = replace(kept, values=[*kept.values, row(variable, value, secret=secret)])
    return registering.change(world.actor, world.user, current, data, current.version)


def edit_into_a_command(world: World, variable: str, value: str) -> Any:
    """The user's own URL server is changed to run a command."""
    url = Registration(name=f"Mine {variable}", transport=TransportKind.AUTO_HTTP, url="https://mcp.example.com/mcp")
    mine = registering.register(world.actor, world.user, url)
    data = replace(world.registration(mine.name, row(variable, value, secret=False)), slug=mine.slug)
    return registering.change(world.actor, world.user, mine, data, mine.version)


def clone(world: World, variable: str, value: str) -> Any:
    return registering.clone(world.actor, world.user, world.server, f"Copy {variable}")


def try_connection(world: World, variable: str, value: str) -> Any:
    return create_draft(world.actor, world.user, world.registration("Draft", row(variable, value, secret=False)))


def try_connection_of_an_edit(world: World, variable: str, value: str) -> Any:
    data = world.registration("Victim", row(variable, value, secret=True))
    return create_draft(world.actor, world.user, data, world.server)


def try_connection_with_a_credential(world: World, variable: str, value: str) -> Any:
    made = planted(world, variable, value)
    data = world.registration("Draft", row(variable, "", secret=False))
    return create_draft(world.actor, world.user, data, chosen=[made])


def register_with_a_credential(world: World, variable: str, value: str) -> Any:
    made = planted(world, variable, value)
    return registering.register(world.actor, world.user, world.registration(f"New {variable}"), chosen=[made])


def own_credential(world: World, variable: str, value: str) -> Any:
    return vault.create_own(world.actor, world.user, world.server, of_variable(variable, value))


def own_credential_by_its_page(world: World, variable: str, value: str) -> Any:
    data = {"variable": variable, "value": value}
    return world.client.post(f"/servers/{world.server.slug}/identity/credential/?kind=environment", data)


def own_credential_of_a_declared_name(world: World, variable: str, value: str) -> Any:
    """The registration declares the dangerous name, which an administrator may have done."""
    world.server.values.create(kind=ValueKind.ENVIRONMENT, name=variable, secret=True)
    try:
        return own_credential(world, variable, value)
    finally:
        world.server.values.filter(name=variable).delete()


def stored_credential(world: World, variable: str, value: str) -> Any:
    made = vault.create(world.actor, world.user, f"Mine {variable}", of_variable(variable, value))
    return vault.attach(world.actor, world.user, world.server, made)


def stored_credential_by_its_page(world: World, variable: str, value: str) -> Any:
    data = {"name": f"Mine {variable}", "variable": variable, "value": value}
    return world.client.post(f"/credentials/add/?kind=environment&server={world.server.slug}", data)


def replaced_credential(world: World, variable: str, value: str) -> Any:
    made = world.stored("API_TOKEN", "harmless")
    vault.attach(Actor.of_user(world.admin), world.admin, world.server, made)
    try:
        return vault.replace(world.actor, world.user, made, of_variable(variable, value))
    finally:
        if Credential.objects.get(pk=made.pk).details == {"variable": "API_TOKEN"}:
            made.delete()


def replaced_credential_by_its_page(world: World, variable: str, value: str) -> Any:
    made = world.stored("API_TOKEN", "harmless")
    vault.attach(Actor.of_user(world.admin), world.admin, world.server, made)
    answer = world.client.post(f"/credentials/{made.uid}/replace/", {"variable": variable, "value": value})
    if Credential.objects.get(pk=made.pk).details == {"variable": "API_TOKEN"}:
        made.delete()
    return answer


def attached_by_its_page(world: World, variable: str, value: str) -> Any:
    made = planted(world, variable, value)
    return world.client.post(f"/credentials/for/{world.server.slug}/", {"credential": str(made.uid)})


def planted(world: World, variable: str, value: str) -> Credential:
    """A row that no door let in, as from an older version or another program."""
    made = Credential(name=f"Planted {variable} {Credential.objects.count()}", kind=CredentialKind.ENVIRONMENT)
    text = json.dumps({"value": value})
    made.sealed, made.key_id = crypto.seal(text, table=vault.TABLE, uid=made.uid, field=vault.FIELD)
    made.details, made.sealed_at = {"variable": variable}, timezone.now()
    made.save()
    return made


def planted_in_use(world: World, variable: str, value: str) -> Any:
    shared = Identity.objects.get(server=world.server, kind=IdentityKind.SHARED)
    return CredentialUse.objects.create(credential=planted(world, variable, value), identity=shared)


def planted_as_ones_own(world: World, variable: str, value: str) -> Any:
    own, _ = Identity.objects.get_or_create(server=world.server, user=world.user, kind=IdentityKind.PERSONAL)
    return CredentialUse.objects.create(credential=planted(world, variable, value), identity=own)


def imported(world: World, text: str, choice: Choice) -> Any:
    document = read(text)
    proposals = plan(world.user, document)
    stored = proposals[0].stored
    decision = Decision(choice, version=stored.version if stored else 0)
    return apply(world.actor, world.user, document, proposals, {0: decision})


def entry_of(world: World, variable: str, value: str) -> dict[str, Any]:
    return {"command": "/bin/sh", "args": [f"{world.trap.folder}/script"], "env": {variable: value}}


def import_json(world: World, variable: str, value: str) -> Any:
    text = json.dumps({"mcpServers": {f"New {variable}": entry_of(world, variable, value)}})
    return imported(world, text, Choice.CREATE)


def import_over_it(world: World, variable: str, value: str) -> Any:
    text = json.dumps({"mcpServers": {"Victim": entry_of(world, variable, value)}})
    return imported(world, text, Choice.OVERWRITE)


def import_vs_code(world: World, variable: str, value: str) -> Any:
    text = json.dumps({"servers": {f"New {variable}": {"type": "stdio", **entry_of(world, variable, value)}}})
    return imported(world, text, Choice.CREATE)


def import_toml(world: World, variable: str, value: str) -> Any:
    script = f"{world.trap.folder}/script"
    text = (
        f'[mcp_servers.new-{variable}]\ncommand = "/bin/sh"\nargs = ["{script}"]\nenv = {{ {variable} = "{value}" }}\n'
    )
    return imported(world, text, Choice.CREATE)


def import_yaml(world: World, variable: str, value: str) -> Any:
    entry = entry_of(world, variable, value)
    lines = ["extensions:", f"  new-{variable}:", "    type: stdio", "    cmd: /bin/sh"]
    lines += ["    args:", f"      - {entry['args'][0]}", "    envs:", f"      {variable}: {json.dumps(value)}"]
    return imported(world, "\n".join(lines), Choice.CREATE)


def import_of_the_registry(world: World, variable: str, value: str) -> Any:
    package = {"registryType": "npm", "identifier": f"{world.trap.folder}/script", "runtimeHint": "/bin/sh"}
    package["environmentVariables"] = [{"name": variable, "value": value}]  # type: ignore[assignment]  # a JSON value
    text = json.dumps({"name": f"x/{variable}", "packages": [package]})
    return imported(world, text, Choice.CREATE)


def register_by_command(world: World, variable: str, value: str) -> Any:
    options = ["--user", world.user.username, "--name", f"New {variable}", "--env", f"{variable}={value}"]
    command = ["--", "/bin/sh", f"{world.trap.folder}/script"]
    return call_command("register_server", *options, *command, stdout=StringIO())


def import_by_command(world: World, variable: str, value: str) -> Any:
    file = world.trap.folder / "import.json"
    file.write_text(json.dumps({"mcpServers": {f"New {variable}": entry_of(world, variable, value)}}))
    return call_command("import_servers", str(file), "--user", world.user.username, stdout=StringIO())


#: by registrations: what a person with permission to register commands sets is approved
REGISTERED: dict[str, Way] = {
    "register": register,
    "register, secret": partial(register, secret=True),
    "edit": edit,
    "edit, secret": partial(edit, secret=True),
    "edit into a command": edit_into_a_command,
    "test connection": try_connection,
    "test connection of an edit": try_connection_of_an_edit,
    "import of mcpServers": import_json,
    "import over it": import_over_it,
    "import of VS Code": import_vs_code,
    "import of TOML": import_toml,
    "import of YAML": import_yaml,
    "import of the registry": import_of_the_registry,
    "register_server": register_by_command,
    "import_servers": import_by_command,
}
#: by credentials, and from rows that no door let in: never
FILLED: dict[str, Way] = {
    "clone": clone,
    "own credential": own_credential,
    "own credential by its page": own_credential_by_its_page,
    "own credential of a declared name": own_credential_of_a_declared_name,
    "stored credential": stored_credential,
    "stored credential by its page": stored_credential_by_its_page,
    "attached by its page": attached_by_its_page,
    "replaced credential": replaced_credential,
    "replaced credential by its page": replaced_credential_by_its_page,
    "register with a credential": register_with_a_credential,
    "test connection with a credential": try_connection_with_a_credential,
    "planted in use": planted_in_use,
    "planted as one's own": planted_as_ones_own,
}
REFUSED = (ValidationError, PermissionDenied, CommandError)
#: what a refusal says: who may set it, and where
NAMES_THE_RULE = re.compile(r"register commands|permission to|Cannot be imported|were not imported", re.IGNORECASE)


def attempted(way: Way, world: World) -> list[str]:
    """Tries every variable and returns what was said to each refusal."""
    said = []
    for variable, value in world.trap.variables.items():
        try:
            way(world, variable, value)
        except REFUSED as refused:
            said.append(" ".join(getattr(refused, "messages", None) or [str(refused)]))
    return said


@pytest.fixture(autouse=True)
def _folders(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


@pytest.mark.parametrize(
    "permissions", [pytest.param(name, marks=[pytest.mark.long] * (name not in SHORT)) for name in PERMISSIONS]
)
@pytest.mark.parametrize("way", [*REGISTERED, *FILLED])
def test_no_variable_runs_code_unless_a_person_who_may_register_commands_set_it(
    way: str, permissions: str, trap: Trap, admin_user: Any
) -> None:
    world = World(trap, admin_user, PERMISSIONS[permissions])
    said = attempted((REGISTERED | FILLED)[way], world)
    ran = sum(executions(trap, launch) for launch in world.launches())
    if way in REGISTERED and permissions == APPROVED:
        assert (said, ran > 0) == ([], True), "what was approved runs"
    else:
        assert ran == 0
    assert all(NAMES_THE_RULE.search(words) for words in said), said


def test_the_trap_springs_for_each_variable_when_it_is_set(trap: Trap) -> None:
    for variable, value in trap.variables.items():
        base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"}
        found = _traced(
            ("/bin/sh", f"{trap.folder}/script"), tuple(sorted((base | {variable: value}).items())), str(trap.folder)
        )
        assert f'execve("{trap.marker}"' in found, variable


def test_a_session_that_is_not_run_shows_the_reason_and_who_can_change_it(trap: Trap, admin_user: Any) -> None:
    world = World(trap, admin_user, ())
    planted_in_use(world, "BASH_ENV", trap.variables["BASH_ENV"])
    session = McpSession.objects.get_or_create(
        server=world.server, identity=world.server.identities.get(), defaults={"state_since": timezone.now()}
    )[0]
    with pytest.raises(LaunchProblem) as refused:
        load(session.pk)
    assert refused.value.failure.fault == "variable_refused"
    for words in ("BASH_ENV", "makes a shell run code", "“Register commands”", "Settings"):
        assert words in refused.value.failure.detail


def test_what_one_may_declare_a_credential_still_fills(trap: Trap, admin_user: Any) -> None:
    """The rule still permits the purpose of credentials: the user's own token, which is data."""
    world = World(trap, admin_user, PERMISSIONS["call tools"])
    own_credential(world, "API_TOKEN", "of-my-own")
    found = {launch.spec.env()["API_TOKEN"] for launch in world.launches()}  # type: ignore[union-attr]  # all are stdio
    assert found == {"of-the-registration", "of-my-own"}


def test_no_message_of_a_socket_sets_a_variable() -> None:
    assert consumer._HANDLERS.keys() == {"sub", "unsub", "ping", "call", "cancel"}
