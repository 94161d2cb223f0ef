"""What a stdio server gets besides its registration: a private working directory, inherited variables, and time to
install."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings as product
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.utils import timezone

from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.configuration import Registration
from servers.credentials import identities
from servers.enums import IdentityKind, SignsInAs, TransportKind
from servers.models import Identity, Server
from servers.registration import registering
from servers.registration.drafts import new_draft
from servers.registration.inherited import inherited, secrets_of
from sessions.connections import commands
from sessions.enums import Desired, SessionState
from sessions.host import directories
from sessions.host.answer_redaction import Redactor
from sessions.host.child_confinement import own_paths
from sessions.host.launch import INSTALL_SECONDS, load
from sessions.host.launch_problem import LaunchProblem
from sessions.mcp.core.errors import Fault
from sessions.mcp.transports.registry import StdioSpec
from sessions.mcp.transports.stdio import processes
from sessions.mcp.transports.stdio.confinement import first_overlap
from sessions.models import LogLine, McpSession
from tests.sessions.host.conftest import StartWorker
from tests.sessions.host.harness import WorkerProcess, await_ready, eventually
from tests.sessions.host.make import make_session
from tests.sessions.host.test_worker_probe import over

NOBODY = 65_534
SAYS_WHERE = "import os, sys; print('works in', os.getcwd(), file=sys.stderr); sys.exit(3)"
SERVER = Path(__file__).parents[1] / "mcp" / "transports" / "stdio_scripts" / "server.py"
WRITES_HOME = (
    "import os, sys; open(os.path.expanduser('~/token'), 'w').write('mine'); os.execv(sys.argv[1], sys.argv[1:])"
)
WRITES = "import os, sys; open('notes.txt', 'w').write('mine'); os.execv(sys.argv[1], sys.argv[1:])"


def spec_of(**fields: object) -> StdioSpec:
    spec = load(make_session(**fields).pk).spec  # type: ignore[arg-type]  # columns of a server
    assert isinstance(spec, StdioSpec)
    return spec


@pytest.fixture
def data(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return tmp_path


@pytest.mark.django_db
def test_a_server_works_in_a_directory_of_its_own_that_only_we_may_enter(data: Path) -> None:
    session = make_session()
    spec = load(session.pk).spec
    assert isinstance(spec, StdioSpec)
    assert spec.cwd == str(data / "servers" / str(session.server.uid) / "work")
    for path in (Path(spec.cwd), Path(spec.cwd).parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.django_db
def test_hosts_of_the_operator_are_reachable_by_every_server_and_a_wrong_one_is_named(
    data: Path, settings: Any
) -> None:
    settings.STDIO_HOSTS = ["mirror.corp.example:8080"]
    confinement = spec_of().confinement
    assert confinement is not None
    assert list(map(str, confinement.hosts)) == ["mirror.corp.example:8080"]
    settings.STDIO_HOSTS = ["http://mirror"]
    with pytest.raises(LaunchProblem, match="MCPADMIN_STDIO_HOSTS cannot be used: '//mirror' is not a port"):
        spec_of(slug="second")


@pytest.mark.django_db
def test_the_directory_of_the_form_is_used_and_no_other_is_made(data: Path) -> None:
    assert spec_of(working_directory="/srv").cwd == "/srv"
    assert [path.name for path in (data / "servers").glob("*/work")] == []


@pytest.mark.django_db
def test_a_directory_goes_with_its_server_and_only_when_that_was_deleted(data: Path, admin_user: object) -> None:
    session, missing = make_session(), uuid4()
    mine = directories.made(directories.work_of_session(session.server.uid))
    theirs = directories.made(directories.work_of_session(missing))
    draft = directories.made(directories.work_of_draft(uuid4()))
    (mine / "picture.png").write_bytes(b"x")
    directories.remove_if_deleted(session.server.uid)
    directories.remove_deleted()
    assert (mine.exists(), theirs.exists(), draft.exists()) == (True, True, False)
    registering.delete(Actor.of_user(admin_user), admin_user, session.server)  # type: ignore[arg-type]  # it has a server
    directories.remove_deleted()
    assert (mine.parent.exists(), theirs.exists()) == (False, True)


def personal(server: Server, user: Any) -> tuple[Identity, list[Path]]:
    """An identity, and the files that its session's program left in its private folders."""
    identity = Identity.objects.create(server=server, kind=IdentityKind.PERSONAL, user=user, name=user.get_username())
    own = directories.confined(server.uid, identity.uid, None, reachable=False)
    work = directories.made(directories.work_of_session(server.uid, identity.uid))
    packages = directories.packages_of(work)
    packages.mkdir()
    (own.home / ".mcp-auth").write_text("token")
    return identity, [work, own.home, own.tmp, own.mount_point, packages]


@pytest.mark.django_db
def test_the_folders_of_a_person_go_with_their_identity_and_only_when_that_ended(data: Path, admin_user: Any) -> None:
    session = make_session()
    shared = directories.confined(session.server.uid, None, None, reachable=False).home
    missing = directories.made(directories.work_of_session(session.server.uid, uuid4()))
    ended, theirs = personal(session.server, admin_user)
    lasting, others = personal(session.server, get_user_model().objects.create_user("bea"))
    directories.remove_if_ended(session.server.uid, ended.pk)
    directories.remove_ended()
    assert all(path.exists() for path in (*theirs, *others))
    assert identities.end(Actor.of_user(admin_user), admin_user, session.server)
    directories.remove_if_ended(session.server.uid, lasting.pk)
    directories.remove_if_ended(session.server.uid, ended.pk)
    assert not any(path.exists() for path in theirs)
    assert all(path.exists() for path in (*others, shared, missing))


@pytest.mark.django_db
@pytest.mark.parametrize("deleted", [False, True])
def test_what_another_machine_has_of_an_ended_identity_goes_too_even_after_the_account(
    data: Path, deleted: bool
) -> None:
    session = make_session()
    bea = get_user_model().objects.create_user("bea")
    bea.user_permissions.set(Permission.objects.filter(codename="view_server"))
    identity, theirs = personal(session.server, bea)
    with audited(Actor.of_user(bea)) as trail:
        identities.finish(trail, identity)
    if deleted:
        bea.delete()
    assert Identity.objects.filter(pk=identity.pk).exists() is not deleted
    directories.remove_ended()
    assert not any(path.exists() for path in theirs)


def test_a_directory_goes_also_where_a_program_took_the_right_to_write_from_its_folders(settings: Any) -> None:
    """As go does with its cache of modules. Root would not notice."""
    draft, user = uuid4(), NOBODY if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as folder:
        settings.DATA_DIR = Path(folder)
        if user is not None:
            os.chown(folder, user, user)
        with processes.acting_as(user):
            cache = directories.made(directories.work_of_draft(draft)).parent / "home" / "go" / "mod"
            cache.mkdir(parents=True)
            (cache / "go.mod").write_text("module x")
            (cache / "more").mkdir(mode=0)
            cache.chmod(0o555)
            directories.remove_draft(draft)
            assert list((Path(folder) / "servers").iterdir()) == []


def nested(folder: Path, levels: int, name: str = "a", data: bytes = b"x") -> None:
    """More than a path can name, and than `shutil.rmtree` of Python 3.12 can remove."""
    folder.mkdir(parents=True, exist_ok=True)
    back = os.getcwd()
    os.chdir(folder)
    try:
        for _ in range(levels):
            os.mkdir(name)
            os.chdir(name)
        Path("file").write_bytes(data)
    finally:
        os.chdir(back)


@pytest.fixture
def deep(settings: Any) -> Iterator[Path]:
    """The data directory. pytest cannot remove what is nested as deep as here."""
    settings.DATA_DIR = Path(tempfile.mkdtemp())
    yield settings.DATA_DIR
    subprocess.run(["rm", "-rf", settings.DATA_DIR], check=True)


@pytest.mark.parametrize(("levels", "name"), [(1_500, "a"), (40, "b" * 250)])
def test_a_directory_goes_however_deep_its_folders_are_nested(deep: Path, levels: int, name: str) -> None:
    draft = uuid4()
    nested(directories.made(directories.work_of_draft(draft)), levels, name)
    (deep / "servers" / f"draft-{draft}" / "out").symlink_to("/usr")
    directories.remove_draft(draft)
    assert list((deep / "servers").iterdir()) == []
    assert Path("/usr/bin").is_dir()


@pytest.mark.django_db
def test_a_deeply_nested_directory_keeps_no_other_from_going(deep: Path, admin_user: Any) -> None:
    server = make_session().server
    identity, own = personal(server, admin_user)
    drafts = [directories.made(directories.work_of_draft(uuid4())) for _ in range(3)]
    for folder in (own[0], drafts[1]):
        nested(folder, 1_500)
    directories.remove_deleted()
    Identity.objects.filter(pk=identity.pk).update(ended_at=timezone.now())
    directories.remove_ended()
    assert [path for path in (deep / "servers").glob("*/*") if "-" in path.name or "draft" in str(path)] == []


@pytest.mark.django_db
def test_two_people_on_one_server_have_a_directory_each(data: Path, admin_user: Any) -> None:
    shared = make_session()
    server = shared.server
    identity = Identity.objects.create(server=server, user=admin_user, kind=IdentityKind.PERSONAL, name="ada")
    own = McpSession.objects.create(
        server=server, identity=identity, desired=shared.desired, state_since=shared.state_since
    )
    spec = load(own.pk).spec
    assert isinstance(spec, StdioSpec)
    assert spec.cwd == str(data / "servers" / str(server.uid) / f"work-{identity.uid}")


@pytest.mark.django_db
def test_a_server_that_is_no_process_gets_no_directory(data: Path) -> None:
    load(make_session(transport=TransportKind.STREAMABLE_HTTP, command="", url="https://mcp.example.com/mcp").pk)
    assert not (data / "servers").exists()


@pytest.mark.django_db
def test_a_directory_that_cannot_be_made_is_named_in_the_failure(data: Path) -> None:
    (data / "servers").write_text("a file stands where the directories belong")
    with pytest.raises(LaunchProblem, match=f"could not be created: .*: {data / 'servers'}") as refused:
        load(make_session().pk)
    assert (refused.value.failure.fault, refused.value.failure.step) == (Fault.SPAWN_FAILED, "connect")


@pytest.mark.integration
def test_what_two_servers_write_lands_apart_and_goes_with_the_server_that_is_deleted(
    shared_worker: WorkerProcess, settings: Any
) -> None:
    user = get_user_model().objects.create_superuser("ada")
    arguments = ["-c", WRITES, sys.executable, str(SERVER)]
    sessions = [make_session(slug, command=sys.executable, arguments=arguments) for slug in ("one", "two")]
    files = []
    for session in sessions:
        commands.wake_owner(session.uid)
        await_ready(session)
        files.append(Path(settings.DATA_DIR) / "servers" / str(session.server.uid) / "work" / "notes.txt")
    assert [file.read_text() for file in files] == ["mine", "mine"]
    registering.delete(Actor.of_user(user), user, sessions[0].server)
    eventually(lambda: not files[0].parent.parent.exists(), 20, "its directory stayed")
    assert files[1].exists()


@pytest.mark.integration
def test_what_a_person_left_in_an_own_home_goes_with_their_identity_and_the_shared_one_stays(
    shared_worker: WorkerProcess, settings: Any
) -> None:
    ada = get_user_model().objects.create_superuser("ada")
    arguments = ["-c", WRITES_HOME, sys.executable, str(SERVER)]
    session = make_session(command=sys.executable, arguments=arguments, signs_in_as=SignsInAs.EITHER)
    identity = Identity.objects.create(server=session.server, kind=IdentityKind.PERSONAL, user=ada, name="ada")
    own = commands.session_of(identity, session.server)
    commands.open_session(Actor.of_user(ada), own)
    for one in (session, own):
        commands.wake_owner(one.uid)
        await_ready(one)
    folder = Path(settings.DATA_DIR) / "servers" / str(session.server.uid)
    homes = [folder / "home" / "token", folder / f"home-{identity.uid}" / "token"]
    assert [file.read_text() for file in homes] == ["mine", "mine"]
    assert identities.end(Actor.of_user(ada), ada, session.server)
    eventually(lambda: not [*folder.glob(f"*-{identity.uid}")], 20, "its folders stayed")
    assert homes[0].exists()


@pytest.mark.integration
def test_a_worker_that_starts_removes_the_directory_of_a_server_deleted_meanwhile(
    start_worker: StartWorker, admin_user: Any
) -> None:
    session = make_session(desired=Desired.CLOSED)
    place = directories.made(directories.work_of_session(session.server.uid))
    registering.delete(Actor.of_user(admin_user), admin_user, session.server)
    assert place.exists()
    start_worker()
    eventually(lambda: not place.parent.exists(), 20, "its directory stayed")


@pytest.mark.integration
def test_a_connection_test_works_in_a_directory_that_is_gone_afterwards(
    transactional_db: None, shared_worker: WorkerProcess, settings: Any
) -> None:
    user = get_user_model().objects.create_superuser("ada")
    actor = Actor.of_user(user)
    fields = {"command": sys.executable, "arguments": ["-c", SAYS_WHERE]}
    draft = new_draft(actor, user, Registration(name="x", transport=TransportKind.STDIO, **fields))
    commands.test_draft(actor, draft)
    done = over(draft)
    place = Path(settings.DATA_DIR) / "servers" / f"draft-{draft.uid}"
    assert f"works in {place}/work" in done.stderr_tail
    eventually(lambda: not place.exists(), 10)


# -- inherited variables


@pytest.mark.django_db
def test_a_server_gets_the_variables_that_the_operator_lists_and_its_own_go_before(
    data: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://ada:canary-proxy@proxy.example:3128")
    monkeypatch.setenv("npm_config_registry", "https://mirror.example")
    monkeypatch.setenv("npm_config_cache", "/var/cache/npm")
    monkeypatch.setenv("OTHER", "x")
    session = make_session(environment={"npm_config_registry": "https://mine.example"})
    assert "HTTPS_PROXY" not in load(session.pk).spec.env()  # type: ignore[union-attr]  # it is a StdioSpec
    settings.INHERITED_VARIABLES = ["HTTPS_PROXY", "npm_config_*"]
    launch = load(session.pk)
    assert isinstance(launch.spec, StdioSpec)
    assert launch.spec.env() == {
        "HTTPS_PROXY": "http://ada:canary-proxy@proxy.example:3128",
        "npm_config_registry": "https://mine.example",
        "npm_config_cache": "/var/cache/npm",
    }
    assert "canary-proxy" in [secret.reveal() for secret in launch.secrets]
    assert "canary-proxy" not in repr(launch)


def test_no_pattern_passes_on_what_is_ours(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.INHERITED_VARIABLES = ["*"]
    ours = ("MCPADMIN_SECRET_KEY", "DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE", "PGPASSWORD", "PGPASSFILE")
    for name in ours:
        monkeypatch.setenv(name, "x")
    assert not {*ours} & inherited().keys()


def test_passwords_of_package_mirrors_are_secrets_and_their_other_settings_are_not() -> None:
    secret = {
        "UV_INDEX_CORP_PASSWORD": "canary-1-word",
        "npm_config_//npm.corp/:_authToken": "canary-2-word",
        "UV_DEFAULT_INDEX": "https://glpat-canary3word@pypi.corp/simple",
        "PIP_EXTRA_INDEX_URL": "https://a:canary-4%2Bword@one.corp/ https://b:canary-5-word@two.corp/",
    }
    plain = {
        "UV_INDEX": "corp=https://deploy@pypi.corp/simple",
        "npm_config_always_auth": "true",
        "NODE_AUTH_FILE": "/etc/npm/auth",
        "GOPRIVATE": "github.com/corp",
        "npm_config_init_author_name": "Jane Example",
        "GIT_AUTHOR_EMAIL": "jane@corp.example",
        "PIP_TOKEN_URL": "https://pypi.corp/token",
    }
    masked = Redactor(secrets_of(secret | plain)).text(json.dumps([*secret.values(), "canary-4+word"]))
    assert "canary" not in masked
    assert Redactor(secrets_of(secret | plain)).text(json.dumps(plain)) == json.dumps(plain)


# -- slow starts


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"command": "npx", "arguments": ["-y", "x"]}, INSTALL_SECONDS),
        ({"command": "uvx", "arguments": ["x"], "connect_timeout_seconds": 300}, 300.0),
        ({"command": "python", "arguments": ["x.py"]}, 30.0),
    ],
)
def test_a_launcher_that_installs_has_two_minutes_at_least(
    data: Path, fields: dict[str, object], seconds: float
) -> None:
    timeouts = load(make_session(**fields).pk).timeouts  # type: ignore[arg-type]  # columns of a server
    assert (timeouts.connect, timeouts.silence, timeouts.initialize) == (seconds,) * 3


@pytest.mark.integration
def test_what_a_starting_server_writes_to_stderr_is_in_the_row_before_it_is_ready(
    transactional_db: None, shared_worker: WorkerProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    code = (
        "import os, sys, time; print('fetching package 1 of 3', file=sys.stderr, flush=True)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.05)\n"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    session = make_session(command=sys.executable, arguments=["-c", code, sys.executable, str(SERVER)])
    commands.wake_owner(session.uid)
    rows = McpSession.objects.filter(pk=session.pk)
    eventually(rows.filter(state=SessionState.CONNECTING, stderr_tail__contains="fetching package 1 of 3").first, 20)
    go.touch()
    ready = eventually(rows.filter(state=SessionState.READY).first, 20)
    assert (ready.era, ready.stderr_tail, ready.restarts) == ("legacy", "", 0)
    assert LogLine.objects.filter(text__contains="fetching package").count() == 1
    assert json.loads(json.dumps(ready.remembered))["era"] == "legacy"


@pytest.mark.django_db
@pytest.mark.parametrize("field", ["readable_paths", "writable_paths", "working_directory"])
def test_a_link_to_the_processes_of_the_machine_is_not_granted(field: str, data: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/proc")
    with pytest.raises(LaunchProblem, match="leads to processes, settings or devices of the machine"):
        spec_of(**{field: str(link) if field == "working_directory" else [str(link)]})


@pytest.mark.django_db
@pytest.mark.parametrize(
    "place", ["", "/servers", "/servers/..", "/servers/7c1d6f0e-3c53-4a39-9a4e-0d8f6a0f1c11/work", "/servers/../keys"]
)
def test_a_working_directory_in_the_data_directory_that_is_not_the_servers_own_is_refused(
    place: str, data: Path
) -> None:
    spec = spec_of(working_directory=f"{data}{place}")
    assert spec.cwd is not None
    assert spec.confinement is not None
    assert first_overlap((spec.cwd,), spec.confinement) == spec.cwd


@pytest.mark.django_db
@pytest.mark.parametrize("setting", ["KEYRING_FILE", "CHECKPOINT_KEY_FILE", "CHECKPOINT_FILE"])
def test_no_server_gets_a_folder_that_holds_keys_or_checkpoints_wherever_they_are(
    setting: str, settings: Any, tmp_path: Path
) -> None:
    settings.DATA_DIR, place = tmp_path / "data", tmp_path / "elsewhere"
    settings.DATA_DIR.mkdir()
    setattr(settings, setting, place / "file")
    confinement = spec_of(readable_paths=[str(place)]).confinement
    assert confinement is not None
    assert first_overlap((str(place),), confinement) == str(place)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "place", [product.BASE_DIR, product.BASE_DIR / "sessions", product.BASE_DIR.parent, sys.prefix]
)
def test_no_server_may_change_the_program_and_any_may_read_it(place: Path | str, data: Path) -> None:
    for fields in ({"writable_paths": [str(place)]}, {"working_directory": str(place)}):
        with pytest.raises(LaunchProblem, match="contains mcpadmin's own program"):
            spec_of(**fields)
        McpSession.objects.all().delete()
        Server.objects.all().delete()
    confinement = spec_of(readable_paths=[str(place)]).confinement
    assert confinement is not None
    assert str(place) in confinement.read


@pytest.mark.django_db
def test_a_program_that_only_root_can_change_keeps_no_folder_from_anyone(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    confinement = spec_of(writable_paths=[str(product.BASE_DIR)]).confinement
    assert confinement is not None
    assert str(product.BASE_DIR) in confinement.write


def test_a_database_outside_of_the_data_directory_is_as_much_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    database = product.DATABASES["default"]
    monkeypatch.setitem(database, "ENGINE", "django.db.backends.sqlite3")
    monkeypatch.setitem(database, "NAME", "/srv/mcpadmin/db.sqlite3")
    assert {f"/srv/mcpadmin/db.sqlite3{end}" for end in ("", "-wal", "-shm")} <= set(own_paths())


@pytest.mark.django_db
def test_the_private_directory_may_also_be_named(data: Path) -> None:
    session = make_session()
    Server.objects.update(working_directory=f"{data}/servers/{session.server.uid}/work")
    spec = load(session.pk).spec
    assert isinstance(spec, StdioSpec)
    assert spec.cwd is not None
    assert spec.confinement is not None
    assert first_overlap((spec.cwd,), spec.confinement) is None


@pytest.mark.django_db
def test_a_root_that_names_the_processes_of_the_machine_is_a_hint_only(data: Path) -> None:
    confinement = spec_of(roots=[{"uri": "file:///proc", "name": ""}, {"uri": "file:///srv", "name": ""}]).confinement
    assert confinement is not None
    assert "/srv" in confinement.read
    assert "/proc" not in confinement.read


@pytest.mark.django_db
def test_what_an_earlier_version_stored_and_no_server_may_have_is_said_or_left_out(data: Path) -> None:
    with pytest.raises(
        LaunchProblem, match="hosts under Access in the server's settings cannot be used: Cloud metadata"
    ):
        spec_of(network_hosts=["[::ffff:169.254.169.254]"])
    roots = [{"uri": "file:///srv/%00", "name": ""}, {"uri": "file:///srv", "name": ""}]
    confinement = spec_of(slug="roots", roots=roots).confinement
    assert confinement is not None
    assert [path for path in confinement.read if path.startswith("/srv")] == ["/srv"]
