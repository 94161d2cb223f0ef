"""The product logs one JSON object per line, one line per outage of Redis, and no traceback for a refusal."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path

import pytest
import structlog
from redis.exceptions import ConnectionError as RedisGone
from structlog.testing import capture_logs

from mcpadmin.logging import TracebackFilter
from mcpadmin.up.process import foreign_line
from tests.tools.stack import ROOT, clean_environment

BACK = re.compile(r"redis\.reachable_again")


def record(name: str, problem: BaseException, **extra: object) -> logging.LogRecord:
    found = logging.LogRecord(name, logging.ERROR, "", 1, "It failed", (), (type(problem), problem, None))
    vars(found).update(extra)
    return found


def test_a_refused_request_is_logged_without_a_traceback() -> None:
    refused = record("django.request", PermissionError("no"), status_code=403)
    assert TracebackFilter().filter(refused)
    assert refused.exc_info is None
    failed = record("django.request", ValueError("bug"), status_code=500)
    assert TracebackFilter().filter(failed)
    assert failed.exc_info is not None


@pytest.mark.parametrize("library", ["channels_redis.pubsub", "celery.worker.request"])
def test_a_librarys_report_of_a_lost_redis_is_dropped_and_a_bug_is_not(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[BaseException | str] = []
    monkeypatch.setattr("mcpadmin.logging.outage.noticed", reported.append)
    problem = RedisGone("refused")
    assert not TracebackFilter().filter(record(library, problem))
    assert reported == [problem]
    ours = record("live", problem)
    assert TracebackFilter().filter(ours)
    assert ours.exc_info is None
    assert TracebackFilter().filter(record(library, ValueError("bug")))


def test_a_line_of_any_part_is_one_json_object() -> None:
    ours = json.loads(foreign_line("web", '{"message": "request", "status": 200}'))
    assert ours == {"message": "request", "status": 200, "part": "web"}
    foreign = json.loads(foreign_line("valkey", 'Ready to "accept" password=hunter2hunter2'))
    assert foreign["part"] == "valkey"
    assert "hunter2hunter2" not in foreign["message"]
    assert json.loads(foreign_line("worker", "[1]"))["message"] == "[1]"


def test_a_connection_that_is_found_lost_after_an_outage_is_no_outage_of_its_own(
    valkey: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("sessions.hints.outage")  # the package has an object of that name
    monkeypatch.setattr(module, "ATTEMPT_SECONDS", 20)  # a busy machine is no outage
    monkeypatch.setattr(module, "log", structlog.get_logger())  # a logger used earlier keeps its old configuration
    found, over = module.Outage(), threading.Semaphore(0)
    found.watch(over.release)
    with capture_logs() as lines:
        for number_of_lines, aftermath in ((1, 30), (1, 30), (2, 0)):
            monkeypatch.setattr(module, "AFTERMATH_SECONDS", aftermath)
            found.noticed(ConnectionResetError("by peer"))
            assert over.acquire(timeout=20)
            assert [line["event"] for line in lines] == ["redis.reachable_again"] * number_of_lines


@pytest.mark.slow
def test_every_line_is_json_and_a_restart_of_redis_is_one_line_a_process(make_stack) -> None:
    stack = make_stack(env={"MCPADMIN_LOG_FORMAT": "json"}).start()
    before = len(stack.lines)
    os.kill(stack.part("valkey-server")[0].pid, signal.SIGKILL)
    assert (
        json.loads(stack.wait_for(BACK, 60, since=before).string)["part"] == "worker"
    )  # no page is open, so web needs none
    stack.wait_for(re.compile("valkey ready again"), since=before)
    stack.stop()
    lines = [json.loads(line) for line in stack.lines]
    assert all(isinstance(line, dict) and line["part"] and line["message"] for line in lines)
    for line in stack.lines:
        assert "Traceback" not in line, line
    back = [line["part"] for line in lines if line["message"] == "redis.reachable_again"]
    assert len(back) == len(set(back))
    about = [
        line
        for line in lines
        if re.search("redis|broker|Connection", str(line)) and line["part"] not in ("up", "valkey")
    ]
    assert {line["message"] for line in about} == {"redis.reachable_again"}


@pytest.mark.parametrize(
    ("more", "header"),
    [
        ({}, "31536000 False False"),
        ({"MCPADMIN_HSTS_SUBDOMAINS": "true", "MCPADMIN_HSTS_PRELOAD": "true"}, "31536000 True True"),
    ],
)
def test_hsts_covers_other_hosts_only_when_asked_to(tmp_path: Path, more: dict[str, str], header: str) -> None:
    code = (
        "from mcpadmin import settings as s;"
        "print(s.SECURE_HSTS_SECONDS, s.SECURE_HSTS_INCLUDE_SUBDOMAINS, s.SECURE_HSTS_PRELOAD)"
    )
    env = clean_environment(MCPADMIN_PUBLIC_URL="https://mcp.example.org", MCPADMIN_DATA_DIR=str(tmp_path), **more)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == header
