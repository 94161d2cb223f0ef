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
    """With storage of its own that no folder of images slows down. Skips where podman cannot run."""
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
    programs = [os.path.realpath(shutil.which(program) or "") for program in ("python3", "sh")]
    if "" in programs or not Path("/usr/lib").exists():
        pytest.skip("the system has no python3")
    linked = [*programs, *map(str, Path(f"/usr/lib/{Path(programs[0]).name}/lib-dynload").glob("*.so"))]
    done = subprocess.run(["ldd", *linked], capture_output=True, text=True, check=False)
    libraries = {
        os.path.realpath(word) for word in done.stdout.split() if word.startswith("/") and not word.endswith(":")
    }
    (folder / "image" / "usr" / "bin").mkdir(parents=True)
    for link in ("bin", "lib", "lib64"):
        (folder / "image" / link).symlink_to(f"usr/{link}")
    for path in ("/usr/bin/python3", "/usr/bin/sh", f"/usr/lib/{Path(programs[0]).name}", *programs, *libraries):
        target = folder / "image" / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.isdir(path):
            shutil.copytree(path, target, symlinks=True, ignore=shutil.ignore_patterns("test", "__pycache__"))
        elif not target.exists():
            shutil.copy2(path, target)
    for path in done.stdout.split():
        real = os.path.realpath(path)
        target = folder / "image" / "usr" / path.lstrip("/").removeprefix("usr/")
        if path.startswith("/") and not path.endswith(":") and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(real, target)
    program = folder / "image" / "usr" / "bin" / "only-of-the-image"
    program.write_text('#!/bin/sh\n[ -e /etc/shadow ] || echo "the image has $1 $2 and no shadow"\n')
    program.chmod(0o755)
    subprocess.run(["tar", "-cf", "image.tar", "-C", "image", "."], cwd=folder, check=True)
    command = [*shlex.split(words), "import", "--quiet", "image.tar", name]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)


def containers(words: str) -> list[str]:
    """The names of ours, also of those that have ended."""
    command = [*shlex.split(words), "ps", "--all", "--filter", "name=^mcpadmin-", "--format", "{{.Names}}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
