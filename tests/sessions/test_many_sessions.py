"""A thousand idle sessions in one event loop stay within the memory bound and are released when closed. They run in
one process and the server in another, so that only client memory is measured."""

import json
import subprocess
import sys

import pytest

from tests.benchmarks.drivers import http_server
from tests.tools.stack import ROOT, clean_environment

pytestmark = [pytest.mark.integration, pytest.mark.slow]

COUNT = 1_000
KIB_EACH = 60


@pytest.mark.long
@pytest.mark.parametrize(
    ("era", "options", "sockets_each", "tasks_each"),
    [("legacy", ("--listen",), 2, 2), ("modern", (), 1, 1)],
    ids=["legacy-with-its-stream", "modern"],
)
def test_a_thousand_idle_http_sessions_take_60_kib_each_at_most_and_leave_nothing_when_closed(
    era: str, options: tuple[str, ...], sockets_each: int, tasks_each: int
) -> None:
    with http_server(era, *options) as base:
        command = [sys.executable, "-m", "tests.benchmarks.many_sessions", str(COUNT), f"{base}/mcp"]
        done = subprocess.run(
            command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=100, check=False
        )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout)
    before, idle, after = told["before"], told["idle"], told["after"]
    assert (idle["kib"] - before["kib"]) / COUNT <= KIB_EACH
    # The stream stays open. The connection of the last call stays open for some seconds.
    assert COUNT * (sockets_each - 1) <= idle["sockets"] - before["sockets"] <= COUNT * sockets_each
    assert idle["descriptors"] - before["descriptors"] == idle["sockets"] - before["sockets"]
    assert idle["tasks"] - before["tasks"] == COUNT * tasks_each
    assert idle["threads"] == before["threads"]
    assert after == {name: before[name] for name in after}
