"""A worker confines its stdio servers by the registration, and pages say what was refused."""

import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from sessions.connections import commands
from sessions.connections.process_page import process_page
from sessions.connections.refusals import refusals
from sessions.models import LogLine, McpSession, Worker
from tests.sessions.host.conftest import ShareWorker
from tests.sessions.host.harness import WorkerProcess, await_ready, eventually
from tests.sessions.host.make import make_session
from tests.tools import podman

SERVER = Path(__file__).parents[1] / "mcp" / "transports" / "stdio_scripts" / "server.py"
TRIES = """
import os, sys
for path in sys.argv[1].split(","):
    try:
        with open(path, "rb") as file:
            print("got", path, len(file.read(10)), file=sys.stderr)
    except OSError as problem:
        print(problem, file=sys.stderr)
print("user", os.getuid(), os.environ["HOME"], file=sys.stderr)
os.execv(sys.argv[2], sys.argv[2:])
"""


def stderr_of(session: McpSession) -> list[str]:
    return list(LogLine.objects.filter(server=session.server, source="stderr").values_list("text", flat=True))


def trying(paths: list[str], **fields: Any) -> McpSession:
    return make_session(
        command=sys.executable, arguments=["-c", TRIES, ",".join(paths), sys.executable, str(SERVER)], **fields
    )


@pytest.mark.integration
def test_a_server_reads_nothing_of_ours_and_what_it_was_refused_can_be_allowed(
    transactional_db: None, shared_worker: WorkerProcess, settings: Any, tmp_path: Path
) -> None:
    ours = [str(Path(settings.DATA_DIR) / "mcpadmin.sqlite3"), str(settings.KEYRING_FILE)]
    (tmp_path / "notes").write_text("x")
    session = trying([*ours, str(tmp_path / "notes")], writable_paths=[])
    commands.wake_owner(session.uid)
    await_ready(session)
    lines = eventually(lambda: [line for line in stderr_of(session) if line.startswith("user ")] and stderr_of(session))
    assert not [line for line in lines if line.startswith("got ")]
    assert f"[mcpadmin] refused access to {tmp_path}/notes" in lines
    home = str(Path(settings.DATA_DIR) / "servers" / str(session.server.uid) / "home")
    assert [line.split()[2] for line in lines if line.startswith("user ")] == [home]

    found = {refusal.entry: refusal.field for refusal in refusals(session)}
    assert found[f"{tmp_path}/notes"] == "readable_paths"
    of_ours = [refusal for refusal in refusals(session) if any(path in refusal.what for path in ours)]
    assert {(refusal.field, "mcpadmin itself" in refusal.why) for refusal in of_ours} == {("", True)}
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada"))
    page = client.get(f"/servers/{session.server.slug}/info/").content.decode()
    assert "Blocked by confinement" in page
    assert "Landlock and seccomp" in client.get("/sessions/").content.decode()
    form = client.get(f"/servers/{session.server.slug}/settings/?allow=readable_paths&entry={tmp_path}/notes").content
    assert f"{tmp_path}/notes was added to".encode() in form


@pytest.mark.integration
def test_what_the_registration_grants_can_be_read(
    transactional_db: None, shared_worker: WorkerProcess, tmp_path: Path
) -> None:
    (tmp_path / "notes").write_text("granted")
    session = trying([str(tmp_path / "notes")], writable_paths=[], readable_paths=[str(tmp_path)])
    commands.wake_owner(session.uid)
    await_ready(session)
    eventually(lambda: f"got {tmp_path}/notes 7" in stderr_of(session))


@pytest.mark.integration
def test_a_worker_runs_commands_in_containers_of_the_runtime_that_an_operator_named(
    transactional_db: None, share_worker: ShareWorker, settings: Any, tmp_path: Path
) -> None:
    words = podman.command_line()
    share_worker(MCPADMIN_CONTAINER_RUNTIME=words)
    (tmp_path / "notes").write_text("granted")
    ours = str(Path(settings.DATA_DIR) / "mcpadmin.sqlite3")
    session = trying([str(tmp_path / "notes"), ours], writable_paths=[], readable_paths=[str(tmp_path / "notes")])
    commands.wake_owner(session.uid)
    await_ready(session)
    eventually(lambda: f"got {tmp_path}/notes 7" in stderr_of(session))
    assert not [line for line in stderr_of(session) if line.startswith(f"got {ours}")]
    assert len(podman.containers(words)) == 1
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada"))
    assert "Container and seccomp" in client.get("/sessions/").content.decode()
    process = eventually(lambda: process_page(McpSession.objects.get(pk=session.pk)), 20)
    assert process.confinement == "Container and seccomp"
    session.server.delete()
    eventually(lambda: not podman.containers(words), 20)


@pytest.mark.integration
def test_a_runtime_that_does_not_work_is_reported_and_commands_stay_confined(
    transactional_db: None, share_worker: ShareWorker
) -> None:
    share_worker(MCPADMIN_CONTAINER_RUNTIME="/none/podman --log-level=error")
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada"))
    page = client.get("/sessions/").content.decode()
    assert "The container runtime set with MCPADMIN_CONTAINER_RUNTIME is not used." in page
    assert "podman: the program /none/podman was not found." in page
    assert "commands are confined by Landlock and seccomp" in page


@pytest.mark.integration
def test_an_operator_can_run_commands_unconfined_and_every_page_of_an_administrator_says_so(
    transactional_db: None, share_worker: ShareWorker, settings: Any, tmp_path: Path
) -> None:
    share_worker(MCPADMIN_STDIO_UNCONFINED="1")
    (tmp_path / "notes").write_text("x")
    session = trying([str(tmp_path / "notes")], writable_paths=[])
    commands.wake_owner(session.uid)
    await_ready(session)
    eventually(lambda: f"got {tmp_path}/notes 1" in stderr_of(session))
    assert Worker.objects.get().confinement == "unconfined"
    settings.STDIO_UNCONFINED = True
    client, users = Client(), get_user_model().objects
    client.force_login(users.create_superuser("ada"))
    assert b"Commands run without confinement" in client.get("/servers/").content
    client.force_login(users.create_user("bob"))
    assert b"Commands run without confinement" not in client.get("/servers/").content
