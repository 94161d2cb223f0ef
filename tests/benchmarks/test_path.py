"""Short benchmarks of the whole product work and print everything that a long run does. Their numbers mean nothing."""

import pytest

from tests.benchmarks.test_benchmarks import told_by

pytestmark = [pytest.mark.up, pytest.mark.long]


def test_the_whole_path_has_a_row_for_each_case_the_cpu_of_each_process_and_a_verdict_for_each_goal() -> None:
    told = told_by("bench_path", "--rounds", "1", "--seconds", "0.3", seconds=500)
    rows = [line.split()[:2] for line in told.splitlines()]
    assert all([kind, count] in rows for kind in ("stdio", "http") for count in ("1", "50"))
    assert told.count("valkey") == 4
    assert told.count("(goal: ") == 6


def test_the_fan_out_reaches_every_socket_and_says_how_soon() -> None:
    told = told_by("bench_fanout", "--rounds", "1", "--events", "2", "--sockets", "100", seconds=500)
    assert "100 sockets: p50" in told
    assert told.count("(goal: ") == 1


def test_the_endpoint_for_agents_has_a_row_for_each_load_and_a_verdict_for_each_goal() -> None:
    words = ("--rounds", "1", "--seconds", "0.5", "--streams", "20", "--listeners", "10", "--updates", "1")
    told = told_by("bench_agents", *words, seconds=500)
    rows = [line.split() for line in told.splitlines()]
    for name in ("direct", "mcpadmin, 2025-11-25", "mcpadmin, 2026-07-28"):
        for doing, count in (("call", "1"), ("call", "50"), ("list", "50")):
            row = [*name.split(), doing, count]
            assert any(found[: len(row)] == row for found in rows), row
    assert told.count("(goal: ") == 8
