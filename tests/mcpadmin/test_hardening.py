"""No process of ours shows a secret to another process of the same user."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcpadmin import hardening
from mcpadmin.settings import BASE_DIR
from mcpadmin.up import preflight
from servers.variables import variable

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and prctl")
SECRETS = {
    "MCPADMIN_SECRET_KEY": "canary-key",
    "MCPADMIN_KEYRING": "canary-ring",
    "MCPADMIN_EMAIL_URL": "smtp+tls://ada:canary-mail@mail.example:587",
    "MCPADMIN_WITNESSES": "https://witness.example/log?key=canary-witness",
    "DATABASE_URL": "postgres://ada:canary-database@h/d",
    "REDIS_URL": "redis://:canary-redis@h/0",
    "REDIS_URL_BEAT": "redis://beat:canary-beat@h/0",
    "MCP_TOKEN": "canary-reference",
}
LOOK = """
import json, os, subprocess, sys
from mcpadmin import hardening
hardening.harden()
hardening.harden()  # as when one entry point imports another
print(json.dumps({
    "environ": open("/proc/self/environ").read(),
    "inherited": subprocess.run(["env"], capture_output=True, text=True).stdout,
    "known": dict(hardening.private),
    "umask": os.umask(0),
    "path": os.environ.get("PATH"),
    "descriptors": os.listdir("/proc/self/fd"),
}))
"""


def look(environment: dict[str, str], pass_fds: tuple[int, ...] = ()) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=BASE_DIR, capture_output=True, text=True, check=True, pass_fds=pass_fds,
        env={"PATH": os.environ["PATH"]} | environment,
    )  # fmt: skip
    found: dict = json.loads(done.stdout)
    return found


@linux
def test_secrets_leave_the_environment_and_the_memory_that_proc_shows() -> None:
    found = look(SECRETS | {"MCPADMIN_DATA_DIR": "/srv/data"})
    assert found["known"] == SECRETS
    assert "canary" not in found["environ"] + found["inherited"]
    assert "MCPADMIN_DATA_DIR=/srv/data" in found["environ"]
    assert found["path"] == os.environ["PATH"]
    assert found["umask"] == 0o077


def test_the_settings_know_a_mail_server_whose_address_left_the_environment() -> None:
    look = "from mcpadmin import hardening; hardening.harden(); from mcpadmin import settings; print(settings.EMAIL_HOST_PASSWORD)"
    environment = {**os.environ, "MCPADMIN_EMAIL_URL": SECRETS["MCPADMIN_EMAIL_URL"]}
    argv = [sys.executable, "-c", look]
    done = subprocess.run(argv, cwd=BASE_DIR, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "canary-mail\n"


@linux
def test_secrets_from_the_pipe_were_never_in_the_environment_and_the_pipe_is_closed() -> None:
    pipe = hardening.handed_over(SECRETS)
    found = look({hardening.PIPE_VARIABLE: str(pipe)}, (pipe,))
    os.close(pipe)
    assert found["known"] == SECRETS
    assert "canary" not in found["environ"] + found["inherited"]
    assert str(pipe) not in found["descriptors"]
    assert found["descriptors"] == look({})["descriptors"]


@linux
def test_what_programs_need_stays_even_where_a_pattern_offers_everything() -> None:
    ordinary = {"HOME": "/root", "LANG": "C.UTF-8", "HTTPS_PROXY": "http://proxy", "MCPADMIN_PUBLIC_URL": "http://a"}
    patterns = {"MCPADMIN_REFERENCE_VARIABLES": "*", "MCPADMIN_INHERITED_VARIABLES": "HTTPS_PROXY"}
    found = look(ordinary | patterns | {"TOKEN": "canary"})
    assert found["known"] == {"TOKEN": "canary"}


@linux
@pytest.mark.skipif(os.geteuid() != 0, reason="changes the user")
def test_another_process_of_the_same_user_reads_neither_memory_nor_descriptors(tmp_path: Path) -> None:
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import mcpadmin.hardening as h; import ctypes, json\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"
        "print('open', flush=True); sys.stdin.readline(); h.harden(); print('shut', flush=True); sys.stdin.readline()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(BASE_DIR)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def readable() -> list[str]:
        found = []
        for name in ("environ", "maps", "mem", "fd"):
            look = ["ls"] if name == "fd" else ["head", "-c", "0"]
            argv = [
                "setpriv",
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                *look,
                f"/proc/{process.pid}/{name}",
            ]
            if subprocess.run(argv, capture_output=True, check=False).returncode == 0:
                found.append(name)
        return found

    try:
        assert process.stdout.readline() == "open\n"
        assert readable() == ["environ", "maps", "mem", "fd"]
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "shut\n"
        assert readable() == []
    finally:
        process.kill()
        process.communicate()


def test_a_private_variable_is_found_by_name_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hardening.private, "MCP_TOKEN", "canary")
    assert variable("MCP_TOKEN") == "canary"
    assert variable("MCP_NONE") == ""
    assert hardening.variables["MCP_TOKEN"] == "canary"
    assert "canary" not in repr(hardening.private)
    assert "canary" not in str(hardening.private)


def test_a_loose_data_directory_is_tightened_and_said(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    for name in ("valkey/file", "static/file", "servers/file", "beat/schedule"):
        (directory / name).parent.mkdir(parents=True)
        (directory / name).touch(0o644)
    (directory / "mcpadmin.sqlite3").touch(0o644)
    (directory / "link").symlink_to("/etc/passwd")
    directory.chmod(0o755)
    [line] = preflight.tighten(directory)
    assert line.startswith(f"permissions tightened (other users had access): {directory} (mode 755), ")
    modes = {str(path.relative_to(directory)): path.lstat().st_mode & 0o777 for path in directory.rglob("*")}
    assert modes.pop("link") == 0o777
    assert {name for name, mode in modes.items() if mode & 0o077} <= {
        "static",
        "static/file",
        "servers",
        "servers/file",
    }
    assert not (directory / "beat").exists()
    assert Path("/etc/passwd").stat().st_mode & 0o004
    assert preflight.tighten(directory) == []
