"""A command line of podman that can run a container here."""

import os
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

#: as installed; and where only the other low-level runtime works, such as on machines with both versions of cgroups
_OPTIONS = ("", "--runtime runc")
_TRIAL = "run --rm --network none --read-only --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --volume /usr:/usr:ro"


@cache
def command_line() -> str:
    """With separate storage, so that existing images do not slow it down. Skips where podman cannot run."""
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    if os.geteuid() != 0:
        pytest.skip("podman needs the numbers of /etc/subuid where we are not root")
    problems = []
    for options in _OPTIONS:
        words = f"podman --storage-driver=vfs {options}".strip()
        with tempfile.TemporaryDirectory(dir="/var/tmp") as root:
            for name in ("bin", "sbin", "lib", "lib64"):
                Path(root, name).symlink_to(f"usr/{name}")
            command = [*shlex.split(words), *_TRIAL.split(), "--rootfs", root, "/usr/bin/true"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode == 0:
            return words
        problems.append(done.stderr.strip()[-200:])
    pytest.skip(f"podman cannot run a container here: {problems}")


def make_image(words: str, name: str, folder: Path) -> None:
    """Of the system's Python and shell, and a program that the machine does not have."""
    python, shell, root = os.path.realpath("/usr/bin/python3"), os.path.realpath("/bin/sh"), folder / "image"
    modules = Path(f"/usr/lib/{Path(python).name}")
    if not modules.is_dir():
        pytest.skip("the system has no Python in /usr")
    parts = [python, shell, *map(str, modules.glob("lib-dynload/*.so"))]
    linked = subprocess.run(["ldd", *parts], capture_output=True, text=True, check=False).stdout.split()
    shutil.copytree(modules, root / f"usr/lib/{modules.name}", ignore=shutil.ignore_patterns("test", "__pycache__"))
    (root / "usr/bin").mkdir()
    for link in ("bin", "lib", "lib64"):
        (root / link).symlink_to(f"usr/{link}")
    copies = {path: path for path in linked if path.startswith("/") and not path.endswith(":")}
    for path, source in {**copies, "/usr/bin/python3": python, "/usr/bin/sh": shell}.items():
        target = root / "usr" / path.lstrip("/").removeprefix("usr/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    program = root / "usr/bin/only-of-the-image"
    program.write_text('#!/bin/sh\n[ -e /etc/shadow ] || echo "the image has $1 $2 and no shadow"\n')
    program.chmod(0o755)
    subprocess.run(["tar", "-cf", "image.tar", "-C", "image", "."], cwd=folder, check=True)
    command = [*shlex.split(words), "import", "--quiet", "image.tar", name]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)


def containers(words: str) -> list[str]:
    """The names of ours, also of those that have ended."""
    command = [*shlex.split(words), "ps", "--all", "--filter", "name=^mcpadmin-", "--format", "{{.Names}}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
