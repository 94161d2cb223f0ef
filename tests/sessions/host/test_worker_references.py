"""The value behind a reference in an argument reaches the process and nothing else."""

import sys
from collections.abc import Callable

import pytest
from django.contrib.auth import get_user_model

from servers.audit.record import Actor
from servers.configuration import Registration
from servers.enums import TransportKind
from servers.registration.drafts import new_draft
from sessions.connections import commands
from sessions.models import LogLine
from tests.sessions.host.harness import WorkerProcess
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
