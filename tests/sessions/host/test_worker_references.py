"""The value behind a reference in an argument reaches the process and nothing else. A file is read again when its
credential was refused."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction

from servers.audit.record import Actor
from servers.configuration import Registration
from servers.enums import TransportKind
from servers.registration.drafts import new_draft
from sessions.connections import commands
from sessions.enums import SessionCondition
from sessions.models import LogLine, McpSession
from tests.peers.peers import run_peer
from tests.sessions.host.harness import WorkerProcess, await_ready, eventually, scaled
from tests.sessions.host.make import make_session
from tests.sessions.host.test_worker_probe import over

pytestmark = pytest.mark.integration
VALUE = "canary-argument-7c1"
CODE = "import sys; print('key', sys.argv[1], sys.argv[1][::-1], file=sys.stderr); sys.exit(2)"


def test_the_value_of_a_reference_reaches_the_process_and_no_row_or_log(
    transactional_db: None, start_worker: Callable[..., WorkerProcess]
) -> None:
    worker = start_worker("w1", MCP_ARGUMENT=VALUE)
    user = get_user_model().objects.create_superuser("ada")
    actor = Actor.of_user(user)
    arguments = ["-c", CODE, "${MCP_ARGUMENT}"]
    data = Registration(name="x", transport=TransportKind.STDIO, command=sys.executable, arguments=arguments)
    draft = new_draft(actor, user, data)
    commands.test_draft(actor, draft)
    done = over(draft)
    assert done.fault == "process_exited", done.detail
    assert f"key [redacted] {VALUE[::-1]}" in done.stderr_tail
    rows = str([done.detail, done.steps, done.report, list(LogLine.objects.values_list("text", flat=True))])
    assert VALUE not in rows + done.stderr_tail + worker.output


def test_a_token_that_another_program_renews_in_its_file_opens_the_session_again_without_a_person(
    transactional_db: None, start_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("expired")
    start_worker("w1", MCPADMIN_REFERENCE_FOLDERS=str(tmp_path), **scaled(0.05))
    user = get_user_model().objects.create_superuser("ada")
    with run_peer("evil") as url:
        with transaction.atomic():
            http = {"transport": TransportKind.STREAMABLE_HTTP, "command": "", "url": f"{url}/renewed"}
            session = make_session(**http, references_by=user)
            session.server.values.create(kind="header", name="Authorization", plain=f"Bearer ${{file:{token}}}")
        rows = McpSession.objects.filter(condition=SessionCondition.NEEDS_AUTH, attempts=1)
        eventually(rows.first, 20, "the expired token was not refused")
        token.write_text("renewed")
        await_ready(session)
