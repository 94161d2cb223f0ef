"""Stdio servers in containers of the real podman: what they reach, and that none outlives its worker."""

import json
import os
import pwd
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessions.mcp.transports.registry import StdioSpec, open_transport
from sessions.mcp.transports.stdio import Runtime, Tier, container, isolation, tiers
from tests.sessions.mcp.transports.robbery import INTERPRETER
from tests.sessions.mcp.transports.test_confinement import (
    DAEMON,
    LEGITIMATE,
    NOBODY,
    PROBES,
    ROOT,
    as_root_given_up,
    confinement,
    eventually,
    folder,
    is_written,
    printed,
)
from tests.tools import open_checkout, podman

__all__ = ["folder"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can confine")
ROBBERY = ("-m", "tests.sessions.mcp.transports.robbery", "container")
#: no kernel with Landlock: the container alone holds
WITHOUT_LANDLOCK = "import sys; from tests.sessions.mcp.transports import masked, robbery; masked.mask_landlock(); robbery.main(*sys.argv[1:])"
#: numbers for the user, as usermod --add-subuids gives them, for this process tree only
ROOTLESS = (
    'mount --bind "$1" /etc/subuid && mount --bind "$1" /etc/subgid && user="$2" && shift 2 && '
    'exec setpriv --reuid "$user" --regid "$user" --clear-groups env -i "$@"'
)


def robbed(command: list[str], folder: Path) -> dict[str, dict[str, bool]]:
    (folder / "scene").mkdir()
    (folder / "scene").chmod(0o777)
    command = [*command, podman.command_line(), str(folder / "scene")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, bool]] = json.loads(done.stdout)
    return found


def gets_nothing(report: dict[str, dict[str, bool]]) -> None:
    assert not [name for name, got in report["stolen"].items() if got is not False], report["stolen"]
    assert len(report["stolen"]) > PROBES
    assert list(report["own"].values()) == [True] * LEGITIMATE, report["own"]


def test_a_thief_gets_nothing_in_a_container(folder: Path) -> None:
    gets_nothing(robbed([sys.executable, *ROBBERY], folder))
    assert eventually(lambda: not podman.containers(podman.command_line()))


@pytest.mark.long
def test_a_container_alone_holds_a_thief_where_the_kernel_has_no_landlock(folder: Path) -> None:
    gets_nothing(robbed([sys.executable, "-c", WITHOUT_LANDLOCK, "container"], folder))


@pytest.mark.long
def test_a_thief_gets_nothing_in_a_container_of_an_ordinary_user(folder: Path) -> None:
    if not shutil.which("newuidmap"):
        pytest.skip("newuidmap is not installed")
    podman.command_line()
    (folder / "numbers").write_text(f"{pwd.getpwuid(NOBODY).pw_name}:3000000000:65536\n")
    (folder / "runtime").mkdir(mode=0o700)
    os.chown(folder / "runtime", NOBODY, NOBODY)
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    variables = [
        f"PATH={os.environ['PATH']}", f"HOME={folder}/runtime", f"XDG_RUNTIME_DIR={folder}/runtime",
        f"PYTHONPATH={ROOT}:{packages}", "PYTHONDONTWRITEBYTECODE=1",
    ]  # fmt: skip
    become = ["unshare", "--mount", "sh", "-c", ROOTLESS, "sh", f"{folder}/numbers", str(NOBODY), *variables]
    trial = [*become, INTERPRETER, "-c", "import sessions.mcp.transports.registry"]
    if subprocess.run(trial, cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("no interpreter that an ordinary user can run has the packages")
    command = [*become, INTERPRETER, *ROBBERY]
    try:
        gets_nothing(robbed(command, folder))
    finally:  # podman keeps a process for the user
        stay = folder / "runtime" / "libpod" / "tmp" / "pause.pid"
        if stay.exists():
            os.kill(int(stay.read_text()), 15)


@pytest.mark.parametrize(
    ("end", "words"), [("exit 7", "ended with exit code 7"), ("kill -SEGV $$", "ended by signal 11")]
)
def test_the_end_of_a_server_in_a_container_is_its_own_and_takes_its_daemons_along(
    end: str, words: str, folder: Path
) -> None:
    command = kept(folder, f"{DAEMON}; {end}", "ends")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert words in done.stdout, done.stdout + done.stderr
    assert not is_written(folder / "scene" / "home" / "beat")


def kept(folder: Path, script: str, *more: str) -> list[str]:
    (folder / "scene").mkdir()
    (folder / "scene").chmod(0o711)
    words = podman.command_line()
    return [sys.executable, "-m", "tests.sessions.mcp.transports.kept", words, str(folder / "scene"), script, *more]


def test_no_container_survives_a_killed_worker(folder: Path) -> None:
    """The daemon of its server left its session and its parents, and nothing of the worker ran after the SIGKILL."""
    worker = subprocess.Popen(kept(folder, f"{DAEMON}; exec cat"), cwd=ROOT, stdout=subprocess.PIPE)
    beat = folder / "scene" / "home" / "beat"
    try:
        assert eventually(lambda: beat.exists() and beat.stat().st_size > 0)
    finally:
        worker.kill()
        worker.wait()
    assert eventually(lambda: not is_written(beat))
    assert eventually(lambda: not podman.containers(podman.command_line()))


@pytest.mark.parametrize(("grant", "done"), [("read", "read 1, written 0"), ("write", "read 1, written 1")])
async def test_a_folder_can_be_granted_to_a_container_regardless_of_its_owner(
    grant: str, done: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own folders inside it stay writable."""
    await in_containers(monkeypatch)
    given = folder / "given"
    given.mkdir(mode=0o700)
    (given / "file").write_text("x")
    (given / "file").chmod(0o600)
    script = (
        f"cat {given}/file >/dev/null && r=1; echo y > {given}/new && w=1; echo read ${{r:-0}}, written ${{w:-0}}; "
        "echo z > $HOME/own && ls /etc/shadow /root /home /run/mcpadmin/keeper 2>&1 | grep -c 'cannot access'"
    )
    fields: dict[str, Any] = {grant: (str(given),)}
    lines = await printed(StdioSpec("/bin/sh", ("-c", script), confinement=confinement(folder, **fields)))
    assert f"stdout: {done}" in lines
    assert (folder / "home" / "own").read_text() == "z\n"
    if grant == "write":
        assert (given / "new").stat().st_uid == os.geteuid()


@pytest.mark.long
async def test_an_image_stands_for_the_programs_of_the_system(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    storage = f"{podman.command_line()} --root {folder}/images --runroot {folder}/run"
    podman.make_image(storage, "mcpadmin-test", tmp_path)
    await in_containers(monkeypatch, storage, "mcpadmin-test")
    spec = StdioSpec("only-of-the-image", ("$HOME", "x"), confinement=confinement(folder))
    assert await (await open_transport(spec)).resolve() == "only-of-the-image"
    assert await printed(spec) == ["stdout: the image has $HOME x and no shadow"]


async def in_containers(monkeypatch: pytest.MonkeyPatch, words: str = "", image: str = "") -> None:
    await isolation()
    found = await tiers._probed(Runtime(tuple(shlex.split(words or podman.command_line())), image))
    assert found.tier is Tier.CONTAINER, found.reason
    monkeypatch.setattr(tiers, "_found", found)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("/none/podman", "/none/podman was not found"),
        ("echo 'nonsense' >&2; exit 3", "`runtime run --help` failed: nonsense."),
        ("echo usage", "runtime runs images only. Name one with MCPADMIN_CONTAINER_IMAGE."),
        ('[ "$2" = --help ] && echo --rootfs --userns || { echo "Error: no cgroups" >&2; exit 126; }', "no cgroups."),
        ('[ "$2" = --help ] && echo --rootfs --userns; true', "no process of mcpadmin runs in it."),
    ],
)
async def test_a_runtime_that_does_not_work_is_named_with_the_reason_and_the_next_tier_is_used(
    program: str, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_CONNECT_SECONDS", 0.1)
    path = folder / "runtime"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    found = await tiers._probed(Runtime((program if program.startswith("/") else str(path),)))
    assert found.tier is not Tier.CONTAINER
    assert reason in found.reason


def test_where_root_was_given_up_a_runtime_is_refused_with_a_remedy_or_works(folder: Path) -> None:
    open_checkout.require()
    command = [*as_root_given_up(folder), *ROBBERY]
    (folder / "scene").mkdir()
    (folder / "scene").chmod(0o777)
    done = subprocess.run(
        [*command, podman.command_line(), str(folder / "scene")],
        cwd=ROOT, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    if done.returncode:
        assert "start mcpadmin as an ordinary user who can run containers, or with --user root" in done.stderr
    else:
        gets_nothing(json.loads(done.stdout))
