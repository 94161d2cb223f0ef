"""What a confined stdio server can and cannot do. Real servers and a real thief, in each tier that this machine allows."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessions.mcp.core.errors import LaunchError
from sessions.mcp.core.session import Outgoing
from sessions.mcp.transports.registry import StdioSpec, open_transport
from sessions.mcp.transports.stdio import (
    Confinement,
    Host,
    MachineConfinement,
    Network,
    Tier,
    confines,
    connect_gate,
    names,
    tiers,
    user,
)
from sessions.mcp.transports.stdio import confinement as confinement_module
from sessions.mcp.transports.stdio.confinement import job
from sessions.mcp.transports.stdio.connect_gate import AddressRules, _own_address
from sessions.mcp.transports.stdio.refusals import REFUSAL_MARK
from tests.sessions.mcp.transports.robbery import INTERPRETER, Receiver
from tests.tools import open_checkout, open_homes

ROOT = Path(__file__).parents[4]
NOBODY = 65_534
#: the tier, and whether servers get a view of their own
TIERS = [("landlock", "view"), ("landlock", "no view"), ("bubblewrap", "no view")]
LEGITIMATE = 6
PROBES = 60

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can confine")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Outside /tmp, because each server gets a private /tmp."""
    made = Path(tempfile.mkdtemp(prefix="mcpadmin-confined-", dir="/var/tmp"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def as_we_are(folder: Path) -> list[str]:
    return [sys.executable]


def as_an_ordinary_user(folder: Path) -> list[str]:
    if os.geteuid() != 0:
        return [sys.executable]  # we are one
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    become = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "/usr/bin/env", "HOME=/tmp"]
    command = [*become, f"PYTHONPATH={ROOT}:{packages}", "PYTHONDONTWRITEBYTECODE=1", INTERPRETER]
    trial = subprocess.run(
        [*command, "-c", "import sessions.mcp.transports.registry"], capture_output=True, check=False
    )
    if trial.returncode:
        pytest.skip("no interpreter that an ordinary user can run has the packages")
    return command


def as_an_ordinary_user_of_a_container(folder: Path) -> list[str]:
    """Without namespaces: the worker's own processes and files are in sight."""
    command = as_an_ordinary_user(folder)
    (folder / "bin").mkdir()
    (folder / "bin" / "setpriv").symlink_to(shutil.which("setpriv") or "/none")
    return ["/usr/bin/env", f"PATH={folder}/bin", *([shutil.which(command[0]) or command[0], *command[1:]])]


def as_root_of_a_container(folder: Path) -> list[str]:
    """Without namespaces and the right to look into other users' processes, as Docker has it by default."""
    if os.geteuid() != 0:
        pytest.skip("we are not root")
    (folder / "bin").mkdir()
    (folder / "bin" / "setpriv").symlink_to(shutil.which("setpriv") or "/none")
    less = ["setpriv", "--bounding-set=-sys_ptrace,-sys_admin", "--inh-caps=-all"]
    return [*less, "env", f"PATH={folder}/bin", sys.executable]


def as_root_given_up(folder: Path) -> list[str]:
    """As a worker of an `up` that root started: privileged towards the users of servers only."""
    if os.geteuid() != 0:
        pytest.skip("we are not root")
    inside = open_homes.inside(folder / "empty")
    if inside is None:
        pytest.skip("other users cannot reach the interpreter")
    return [*inside, sys.executable, "-m", "tests.mcpadmin.given_up", str(folder / "given_up"), sys.executable]


@pytest.mark.parametrize(
    ("become", "tier", "view"),
    [
        *((as_we_are, tier, view) for tier, view in TIERS),
        (as_root_given_up, *TIERS[0]),
        *(pytest.param(as_root_given_up, tier, view, marks=pytest.mark.long) for tier, view in TIERS[1:]),
        *(pytest.param(as_an_ordinary_user, tier, view, marks=pytest.mark.long) for tier, view in TIERS),
        pytest.param(as_root_of_a_container, "landlock", "no view", marks=pytest.mark.long),
        pytest.param(as_an_ordinary_user_of_a_container, "landlock", "no view", marks=pytest.mark.long),
    ],
)
def test_a_thief_gets_nothing(become: Callable[[Path], list[str]], tier: str, view: str, folder: Path) -> None:
    if tier == "bubblewrap" and not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    open_checkout.require()
    command = [*become(folder), "-m", "tests.sessions.mcp.transports.robbery", tier, view, str(folder / "scene")]
    (folder / "scene").mkdir()
    (folder / "scene").chmod(0o777)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert not [name for name, got in report["stolen"].items() if got is not False], report["stolen"]
    assert len(report["stolen"]) > PROBES
    assert list(report["own"].values()) == [True] * LEGITIMATE, report["own"]


DAEMON = "PATH=/usr/bin:/bin; cd; (setsid sh -c 'sh -c \"while sleep 0.05; do date +%s%N >beat; done\" &' </dev/null >/dev/null 2>&1 &) ; while ! [ -s beat ]; do sleep 0.02; done"


def kept(folder: Path, script: str, *more: str) -> list[str]:
    (folder / "scene").mkdir()
    (folder / "scene").chmod(0o777)
    command = as_an_ordinary_user_of_a_container(folder)
    return [*command, "-m", "tests.sessions.mcp.transports.kept", "", str(folder / "scene"), script, *more]


def test_without_namespaces_a_daemon_of_a_server_ends_with_a_killed_worker(folder: Path) -> None:
    """It left its session and its parents, and nothing of the worker ran after the SIGKILL."""
    script = f"{DAEMON}; echo up >&2; exec cat"
    worker = subprocess.Popen(kept(folder, script), cwd=ROOT, stdout=subprocess.PIPE)
    beat = folder / "scene" / "home" / "beat"
    try:
        assert eventually(lambda: beat.exists() and beat.stat().st_size > 0)
    finally:
        worker.kill()
        worker.wait()
    assert eventually(lambda: not is_written(beat))


def is_written(file: Path) -> bool:
    before = file.stat().st_mtime_ns
    time.sleep(0.3)
    return file.stat().st_mtime_ns != before


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(
    ("end", "words"),
    [("exit 7", "ended with exit code 7"), ("kill -SEGV $$", "ended by signal 11"), ("kill -KILL $$", "by signal 9")],
)
def test_without_namespaces_the_end_of_a_server_is_its_own_and_takes_its_daemons_along(
    end: str, words: str, folder: Path
) -> None:
    command = kept(folder, f"{DAEMON}; {end}", "ends")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert words in done.stdout, done.stdout + done.stderr
    assert not is_written(folder / "scene" / "home" / "beat")


async def test_without_namespaces_a_package_manager_beside_a_server_does_not_end_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await confines()
    given = confinement(folder)
    if given.uid is None:
        pytest.skip("servers have no users of their own here")
    monkeypatch.setattr(tiers, "_found", MachineConfinement(Tier.LANDLOCK, view=False))
    script = "echo up; read -r line; echo got $line"
    server, receiver = await open_transport(StdioSpec("/bin/sh", ("-c", script), confinement=given)), Receiver()
    try:
        await server.connect(receiver)  # type: ignore[arg-type]  # the part of a receiver that is called
        await printed(StdioSpec("/bin/true", confinement=given))
        await server.send(Outgoing(b"it"))
        with pytest.raises(RuntimeError):
            await receiver.report
    finally:
        await server.close()
    assert "stdout: got it" in receiver.lines


@pytest.mark.parametrize(
    ("mapped", "least"),
    [
        ("0 0 4294967295\n", 50_000_000),
        ("0 1000 1\n1 100000 65536\n", 16_000),
        ("0 32767 1\n32768 32768 32768\n", 16_000),  # `up` in such a container
    ],
)
def test_a_server_under_test_is_never_the_user_of_a_running_one(
    monkeypatch: pytest.MonkeyPatch, mapped: str, least: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tiers, "found", lambda: None)
    monkeypatch.setattr(Path, "read_text", lambda *_: mapped)
    numbers = [*range(1, 100_001, 7), 49_999_999, 50_000_000, 100_000_000]
    running, tested = {user(number) for number in numbers}, {user(number, draft=True) for number in numbers}
    assert running.isdisjoint(tested)
    lines = [tuple(map(int, line.split())) for line in mapped.splitlines()]
    start, _, size = max(lines, key=lambda line: line[2])
    assert all(start <= one < start + size for one in running | tested if one is not None)
    assert len({user(number) for number in range(least)}) == least if least < 100_000 else user(least - 1) != user(0)


@pytest.mark.parametrize("masked", [True, False])
def test_a_machine_that_cannot_confine_starts_no_server_and_says_why(masked: bool, folder: Path) -> None:
    """The second case shows that the same command starts where nothing is masked."""
    command = [sys.executable, "-m", "tests.sessions.mcp.transports.masked", str(folder), *([] if masked else ["x"])]
    environment = os.environ | {"PATH": f"{folder}/bin"}
    (folder / "bin").mkdir()
    for program in ("setpriv", "unshare", "true"):  # all but bubblewrap
        (folder / "bin" / program).symlink_to(shutil.which(program) or "/none")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    if masked:
        assert "not_confined: This worker cannot confine stdio servers, so it starts none." in done.stdout
        assert "Landlock" in done.stdout
        assert "bwrap is not installed" in done.stdout
    else:
        assert "started as process" in done.stdout


# --- one server --------------------------------------------------------------------------------------------------------
def confinement(folder: Path, **fields: Any) -> Confinement:
    uid = user(3)
    for name in ("home", "tmp", "view"):
        (folder / name).mkdir(exist_ok=True, mode=0o700)
        if uid and name != "view":
            os.chown(folder / name, uid, uid)
    places = [str(folder / name) for name in ("home", "tmp", "view")]
    return Confinement(*places, uid=uid, **fields)  # type: ignore[arg-type]  # three paths


async def printed(spec: StdioSpec) -> list[str]:
    """What a server prints until it ends."""
    transport, receiver = await open_transport(spec), Receiver()
    try:
        await transport.connect(receiver)  # type: ignore[arg-type]  # the part of a receiver that is called
        async with asyncio.timeout(20):
            with pytest.raises(RuntimeError):
                await receiver.report
    finally:
        await transport.close()
    return receiver.lines


async def test_a_server_has_a_home_and_a_temporary_folder_of_its_own(folder: Path) -> None:
    script = 'echo "$HOME $TMPDIR"; echo a > "$HOME/x"; echo b > "$TMPDIR/y"; echo $(ls /tmp) "$PWD" "$SECRET"'
    spec = StdioSpec(
        "/bin/sh", ("-c", script), env=lambda: {"SECRET": "mine", "PATH": os.defpath}, confinement=confinement(folder)
    )
    lines = await printed(spec)
    viewed = (await confines()).view
    assert lines[0] == f"stdout: {folder}/home {'/tmp' if viewed else folder / 'tmp'}"
    assert (folder / "tmp" / "y").read_text() == "b\n"
    shown = "y " if viewed else lines[1].split(folder.as_posix())[0].removeprefix("stdout: ")
    assert lines[1] == f"stdout: {shown}{folder}/home mine"


async def test_the_folder_of_a_script_is_readable_and_what_is_not_granted_is_named(folder: Path) -> None:
    (folder / "app").mkdir()
    (folder / "secret").mkdir()
    (folder / "app" / "part.py").write_text("value = 7")
    (folder / "secret" / "file").write_text("x")
    (folder / "app" / "server.py").write_text(
        f"import part; print(part.value, flush=True)\nopen({str(folder / 'secret' / 'file')!r})"
    )
    lines = await printed(StdioSpec(INTERPRETER, (str(folder / "app" / "server.py"),), confinement=confinement(folder)))
    assert "stdout: 7" in lines
    assert f"stderr: {REFUSAL_MARK} refused access to {folder}/secret/file" in lines


@pytest.mark.parametrize(("grant", "done"), [("read", "read 1, written 0"), ("write", "read 1, written 1")])
async def test_a_folder_can_be_granted_for_reading_or_for_writing_regardless_of_its_owner(
    grant: str, done: str, folder: Path
) -> None:
    given = folder / "given"
    given.mkdir(mode=0o700)
    (given / "file").write_text("x")
    (given / "file").chmod(0o600)
    script = f"cat {given}/file >/dev/null && r=1; echo y > {given}/new && w=1; echo read ${{r:-0}}, written ${{w:-0}}"
    fields: dict[str, Any] = {grant: (str(given),)}
    lines = await printed(StdioSpec("/bin/sh", ("-c", script), confinement=confinement(folder, **fields)))
    assert f"stdout: {done}" in lines
    if grant == "write":
        assert (given / "new").stat().st_uid == os.geteuid()


async def test_a_folder_that_holds_what_is_ours_cannot_be_granted(folder: Path) -> None:
    spec = StdioSpec("/bin/true", confinement=confinement(folder, read=("/var",), protected=(str(folder / "data"),)))
    with pytest.raises(LaunchError, match="/var contains mcpadmin's own files"):
        await printed(spec)


READS = "import sys\ntry: print(open(sys.argv[1]).read())\nexcept OSError as e: print(e)"


async def test_a_link_that_a_server_made_grants_it_nothing_at_its_next_start(folder: Path) -> None:
    """The command line names a file in its working directory, which the server can replace by a link."""
    (folder / "secret").write_text("of another user")
    given = confinement(folder)
    (folder / "home" / "notes").symlink_to(folder / "secret")
    for name in ("notes", f"{folder}/home/notes"):
        lines = await printed(StdioSpec(INTERPRETER, ("-I", "-c", READS, name), cwd=given.home, confinement=given))
        assert not [line for line in lines if "of another user" in line], lines
    (folder / "secret").rename(folder / "home" / "own")
    (folder / "home" / "notes").unlink()
    (folder / "home" / "notes").symlink_to(folder / "home" / "own")
    (folder / "home" / "own").chmod(0o644)
    lines = await printed(StdioSpec(INTERPRETER, ("-I", "-c", READS, "notes"), cwd=given.home, confinement=given))
    assert "stdout: of another user" in lines  # inside its own folders it follows its links


async def test_a_program_in_a_folder_that_a_server_can_change_leads_to_no_further_files(folder: Path) -> None:
    """Its first line names an interpreter, and its pyvenv.cfg a home: the server can have written both."""
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "secret").write_text("of another user")
    (folder / "elsewhere" / "python").symlink_to(INTERPRETER)
    project = folder / "project"
    (project / "bin").mkdir(parents=True)
    (project / "pyvenv.cfg").write_text(f"home = {folder}/elsewhere\n")
    (project / "bin" / "run").write_text(f"#!{folder}/elsewhere/python\n")
    (project / "bin" / "run").chmod(0o755)
    given = confinement(folder, write=(str(project),))
    made = job(given, str(project / "bin" / "run"), [], cwd=given.home, environment={}, confines=await confines())
    assert not [path for path in made["read"] if path.startswith(f"{folder}/elsewhere")]


async def test_a_link_that_code_of_its_package_made_leads_to_no_further_files(folder: Path) -> None:
    (folder / "elsewhere" / "bin").mkdir(parents=True)
    (folder / "elsewhere" / "bin" / "run").write_text("#!/bin/sh\n")
    (folder / "elsewhere" / "bin" / "run").chmod(0o755)
    package = folder / "package-1"
    package.mkdir()
    (package / "run").symlink_to(folder / "elsewhere" / "bin" / "run")
    given = replace(confinement(folder), package=str(package))
    made = job(given, str(package / "run"), [], cwd=given.home, environment={}, confines=await confines())
    assert str(package) in made["read"]
    assert str(package) not in made["write"]
    assert not [path for path in made["read"] if path.startswith(f"{folder}/elsewhere")]
    installing = job(
        given.installing(str(package), ()), "/bin/true", [], cwd=str(package), environment={}, confines=await confines()
    )
    assert str(package) in installing["write"]
    hosts = (Host.parsed("registry.example:443"),)
    offline = replace(given, network=Network.NONE, hosts=hosts).installing(str(package), ())
    assert (offline.network, offline.hosts) == (Network.LISTED, hosts)


async def test_a_file_of_the_command_line_in_a_folder_that_may_be_changed_can_be_changed(folder: Path) -> None:
    (folder / "base").mkdir()
    (folder / "base" / "some.db").write_text("before")
    given = confinement(folder, write=(str(folder / "base"),))
    appends = "import sys; open(sys.argv[1], 'a').write(' and after')"
    await printed(StdioSpec(INTERPRETER, ("-I", "-c", appends, f"{folder}/base/some.db"), confinement=given))
    assert (folder / "base" / "some.db").read_text() == "before and after"


async def test_a_granted_path_through_a_link_that_the_server_can_change_is_refused(folder: Path) -> None:
    (folder / "project").mkdir()
    (folder / "project" / "data").symlink_to("/var/log")
    granted = {"read": (str(folder / "project" / "data"),), "write": (str(folder / "project"),)}
    with pytest.raises(LaunchError, match="project/data leads through a link in a folder that this server can change"):
        await printed(StdioSpec("/bin/true", confinement=confinement(folder, **granted)))


def _detour(folder: Path) -> str:
    """A path to `data` through a link that the server made in its home, which without the link is a harmless folder."""
    (folder / "data").mkdir()
    (folder / "data" / "secret").write_text("of mcpadmin")
    (folder / "home" / "a" / "b").mkdir(parents=True)
    (folder / "home" / "data").mkdir()
    (folder / "home" / "link").symlink_to(folder / "home" / "a" / "b")
    return f"{folder}/home/link/../../data"


async def test_a_way_back_over_a_link_of_the_server_does_not_lead_its_working_directory_to_what_is_ours(
    folder: Path,
) -> None:
    given = confinement(folder, protected=(str(folder / "data"),))
    spec = StdioSpec("/bin/cat", (f"{folder}/data/secret",), cwd=_detour(folder), confinement=given)
    with pytest.raises(LaunchError, match="contains mcpadmin's own files"):
        await printed(spec)


async def test_folders_of_the_variable_path_lead_neither_to_what_is_ours_nor_to_processes(folder: Path) -> None:
    given = confinement(folder, protected=(str(folder / "data"),))
    (folder / "programs").mkdir()
    path = f"{_detour(folder)}:/proc/1:/sys/class:{folder}/programs"
    made = job(
        given, "/bin/true", ["/proc/1/cmdline"], cwd=given.home, environment={"PATH": path}, confines=await confines()
    )
    shown = [one for one in made["read"] if one.startswith((f"{folder}/", "/proc/1", "/sys/class"))]
    assert shown == [f"{folder}/programs"]


async def test_what_is_ours_inside_a_folder_of_the_system_stays_out_of_reach(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("system/app/data", "system/bin"):
        (folder / name).mkdir(parents=True)
    monkeypatch.setattr(confinement_module, "SYSTEM", (str(folder / "system"),))
    given = confinement(folder, protected=(str(folder / "system" / "app" / "data"),))
    made = job(given, "/bin/true", [], cwd=given.home, environment={}, confines=await confines())
    assert f"{folder}/system/bin" in made["read"]
    assert not [
        path
        for path in (f"{folder}/system", f"{folder}/system/app", f"{folder}/system/app/data")
        if path in made["read"]
    ]


async def test_a_program_that_cannot_run_is_named_with_the_reason(folder: Path) -> None:
    (folder / "app").mkdir()
    (folder / "app" / "broken").write_bytes(b"\x00\x01 no program")
    (folder / "app" / "broken").chmod(0o755)
    with pytest.raises(LaunchError, match="broken could not be started: Exec format error"):
        await printed(StdioSpec(str(folder / "app" / "broken"), confinement=confinement(folder)))


# --- the network -------------------------------------------------------------------------------------------------------
CONNECT = "import socket, sys\ntry:\n socket.create_connection((sys.argv[1], int(sys.argv[2])), 3); print('connected')\nexcept OSError as e: print(e)"


@pytest.mark.parametrize(
    ("network", "hosts", "name", "connects"),
    [
        (Network.PUBLIC, [], "127.0.0.1", False),
        (Network.PUBLIC, ["127.0.0.1:{port}"], "127.0.0.1", True),
        (Network.LISTED, ["localhost:{port}"], "localhost", True),
        (Network.LISTED, ["localhost:1"], "localhost", False),
        (Network.NONE, ["127.0.0.1:{port}"], "127.0.0.1", False),
    ],
)
async def test_loopback_is_reachable_only_where_it_is_named(
    network: Network, hosts: list[str], name: str, connects: bool, folder: Path
) -> None:
    accepted: list[int] = []
    server = await asyncio.start_server(lambda _, writer: (accepted.append(1), writer.close())[0], "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        listed = tuple(Host.parsed(host.format(port=port)) for host in hosts)
        given = confinement(folder, network=network, hosts=listed)
        lines = await printed(StdioSpec(INTERPRETER, ("-I", "-c", CONNECT, name, str(port)), confinement=given))
    assert ("stdout: connected" in lines) is connects, lines
    assert bool(accepted) is connects
    assert any(line.startswith(f"stderr: {REFUSAL_MARK} refused to connect to") for line in lines) is not connects


@pytest.mark.parametrize(
    ("listed", "asked", "connects"),
    [
        ("FD00:0:0:0::53", "fd00::53", True),
        ("fe80::1%eth0", "fe80::1", True),
        ("::ffff:10.1.2.3", "10.1.2.3", True),
        ("fe80::1%eth0", "fe80::2", False),
        ("no address", "fd00::53", False),
    ],
)
async def test_a_name_server_is_known_in_every_spelling(
    listed: str, asked: str, connects: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "servers", lambda: (listed,))
    given = confinement(folder, network=Network.LISTED)
    lines = await printed(StdioSpec(INTERPRETER, ("-I", "-c", CONNECT, asked, "53"), confinement=given))
    assert ("stdout: connected" in lines) is connects, lines


async def test_a_server_cannot_print_what_only_we_say(folder: Path) -> None:
    forged = f"{REFUSAL_MARK} refused to connect to 10.0.0.5:5432: it is a private network address"
    spec = StdioSpec("/bin/sh", ("-c", 'echo "$0"; echo "$0" >&2', forged), confinement=confinement(folder))
    lines = await printed(spec)
    assert {f"stdout: “{forged}”", f"stderr: “{forged}”"} <= set(lines)


#: an address of IPv6 for a socket of IPv4
MISMATCHED = """import ctypes, os, socket, struct
libc, made = ctypes.CDLL(None, use_errno=True), socket.socket(socket.AF_INET)
address = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", 9, 0) + socket.inet_pton(socket.AF_INET6, "::1") + bytes(4)
libc.connect(made.fileno(), address, len(address)); print(os.strerror(ctypes.get_errno()))"""


async def test_an_address_of_another_family_than_its_socket_is_answered(folder: Path) -> None:
    given = confinement(folder, network=Network.LISTED, hosts=(Host.parsed("[::1]:9"),))
    lines = await printed(StdioSpec(INTERPRETER, ("-I", "-c", MISMATCHED), confinement=given))
    assert "stdout: Address family not supported by protocol" in lines, lines


def test_an_address_is_learned_from_the_answer_to_a_listed_name_only() -> None:
    reach = AddressRules(Network.LISTED, [Host.parsed("*.example.com:443")])
    assert (reach.may_ask_for("api.example.com"), reach.may_ask_for("example.org")) == (True, False)
    reach.learn("api.example.com", ["10.1.2.3", "169.254.169.254"])
    reach.learn("example.org", ["10.9.9.9"])
    assert reach.refusal("10.1.2.3", 443) is None
    assert reach.refusal("::ffff:10.1.2.3", 443) is None
    assert reach.refusal("10.1.2.3", 80) == "it is not one of the listed hosts"
    assert reach.refusal("10.9.9.9", 443) == "it is not one of the listed hosts"


@pytest.mark.parametrize("network", [Network.LISTED, Network.PUBLIC])
@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1"],
)
def test_no_listed_host_leads_to_a_metadata_service_also_not_behind_a_gateway(network: Network, address: str) -> None:
    reach = AddressRules(network, [Host.parsed("api.example.com"), Host(address, None)])
    reach.learn("api.example.com", [address, "64:ff9b::a01:203"])
    assert reach.refusal(address, 80) == "it is a cloud metadata service"
    assert reach.refusal("64:ff9b::a01:203", 80) is None


def test_a_name_with_ever_new_addresses_does_not_fill_the_memory() -> None:
    reach = AddressRules(Network.LISTED, [Host.parsed("api.example.com")])
    for part in range(40):
        reach.learn("api.example.com", [f"203.0.{part}.{number}" for number in range(250)])
    assert len(reach._learned) < 5_000
    assert reach.refusal("203.0.39.249", 443) is None
    assert reach.refusal("203.0.0.1", 443) is not None


def test_an_address_of_this_machine_is_known_from_an_address_elsewhere() -> None:
    assert _own_address("127.0.0.1") == "it is this machine itself"
    assert _own_address("192.0.2.1") is None


def test_an_address_of_this_machine_is_also_known_behind_a_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_gate, "_own_address", lambda address: "ours" if address == "8.8.8.8" else None)
    reach = AddressRules(Network.PUBLIC)
    assert reach.refusal("64:ff9b::8.8.8.8", 443) == "ours"
    assert reach.refusal("64:ff9b::8.8.4.4", 443) is None


@pytest.mark.parametrize(
    "text",
    [
        *("169.254.169.254", "[64:ff9b::a9fe:a9fe]:80", "", "a b", "host:0", "host:x", "-x.example", "[::1"),
        "http://x",
    ],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Host.parsed(text)


def test_an_answer_with_aliases_and_compressed_names_gives_its_addresses() -> None:
    question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03api\x07example\x03com\x00\x00\x01\x00\x01"
    alias = b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x02\xc0\x10"
    address = b"\xc0\x10\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x05\x06\x07\x08"
    answer = question[:2] + b"\x81\x80\x00\x01\x00\x02\x00\x00\x00\x00" + question[12:] + alias + address
    assert names._question_name(question) == "api.example.com"
    assert names._addresses(answer) == ["5.6.7.8"]
    refused = names._without_answer(question, 5)
    assert (refused[:2], refused[3] & 0xF, refused[12:]) == (b"\x12\x34", 5, question[12:])
