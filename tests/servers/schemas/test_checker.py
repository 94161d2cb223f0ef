"""The checker judges values correctly, and a hostile schema cannot harm the process that uses it."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.schemas.checker import MAX_WAITING, Checker
from tests.servers.schemas.test_guards import doubling

pytestmark = pytest.mark.integration
BUSY = doubling(26)

#: our own process never runs a regular expression
NEEDS_THE_CHILD = {"pattern": ""}


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    """With a generous budget, so that a busy machine does not turn verdicts into time-outs."""
    made = Checker(seconds=20)
    yield made
    made.close()


@pytest.fixture
def strict() -> Iterator[Checker]:
    made = Checker()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("schema", "value", "errors"),
    [
        ({"maximum": 500}, 900, {"": ["Must be 500 or less."]}),
        ({"minLength": 1}, "", {"": ["At least 1 character."]}),
        ({"minProperties": 2}, {}, {"": ["At least 2 entries."]}),
        ({"required": ["a/b"]}, {}, {"/a~1b": ["Required."]}),
        ({"properties": {}, "additionalProperties": False}, {"x": 1}, {"/x": ["“x” is not a known property."]}),
        ({"additionalProperties": False}, {"x": 1}, {"": ["No properties are allowed."]}),
        ({"enum": ["a", 1, "1", None]}, 2, {"": ['Must be one of a, 1, "1", null.']}),
        ({"const": True}, 1, {"": ["Must be true."]}),
        ({"type": ["integer", "null"]}, "x", {"": ["Must be null or a whole number."]}),
        ({"items": {"type": "string"}}, ["a", 1], {"/1": ["Must be text."]}),
        ({"uniqueItems": True}, [1, 1], {"": ["Items must be unique."]}),
        ({"multipleOf": 5}, 7, {"": ["Must be a multiple of 5."]}),
        ({"pattern": "^a$"}, "b", {"": ["Must match the pattern ^a$"]}),
        ({"properties": {"a": False}}, {"a": 1}, {"/a": ["No value is allowed."]}),
        ({"anyOf": [{"type": "string"}, {"required": ["k"], "type": "object"}]}, {}, {"/k": ["Required."]}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, {"": ["Matches none of the allowed schemas."]}),
        ({"oneOf": [{"minimum": 1}, {"maximum": 9}]}, 5, {"": ["Matches more than one of the allowed schemas."]}),
        ({"not": {"const": 1}}, 1, {"": ["This value is excluded."]}),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "format": "email"},
            "x",
            {"": ["Must be an email address."]},
        ),
        ({"const": 10**30}, 10**30 + 1, {"": [f"Must be {10**30}."]}),
        ({"type": "integer", "maximum": 2**70}, 2**70, {}),
    ],
)
def test_a_violation_is_said_in_words_at_its_place(checker: Checker, schema: Any, value: Any, errors: Any) -> None:
    verdict = checker.check(schema, value)
    assert verdict.errors == errors
    assert verdict.state == ("invalid" if errors else "valid")


def test_the_dialect_is_the_one_the_schema_declares(checker: Checker) -> None:
    tuple_of_old = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}
    assert checker.check(tuple_of_old, [1]).state == "invalid"
    assert checker.check({"prefixItems": [{"type": "string"}]}, [1]).state == "invalid"
    for misspelt in ("https://json-schema.org/draft-07/schema#", "https://json-schema.org/draft-07/schema"):
        assert checker.check(tuple_of_old | {"$schema": misspelt}, [1]).state == "invalid"
    newest = {"$schema": "http://json-schema.org/schema#", "prefixItems": [{"type": "string"}]}
    assert checker.check(newest, [1]).state == "invalid"
    unknown = checker.check({"$schema": "https://example.com/mine"}, 1)
    assert (unknown.state, "dialect" in unknown.reason) == ("unable", True)


def test_no_sentence_repeats_the_value(checker: Checker) -> None:
    schema = {"properties": {"a": {"format": "x", "type": "integer", "pattern": "b", "contains": {}, "enum": [1]}}}
    verdict = checker.check({**schema, "propertyNames": {"maxLength": 0}}, {"a": "hunter2-secret"})
    assert verdict.violations
    assert "hunter2" not in repr(verdict)


@pytest.mark.parametrize(
    "schema",
    [{"pattern": "^(a+)+$"}, {"pattern": "^(?=(a+)+$)(a|aa)+$"}, BUSY, {"$ref": "#"}, {"not": {"$ref": "#"}}],
    ids=["redos", "redos-lookahead", "doubling-allOf", "self-ref", "not-self"],
)
def test_a_schema_made_to_never_end_gets_an_answer_and_the_next_check_works(strict: Checker, schema: Any) -> None:
    assert strict.check(schema, "a" * 40 + "!").state in {"valid", "invalid", "unable"}
    calm = Checker(seconds=20)
    assert calm.check({"type": "string"}, "a").state == "valid"
    calm.close()


def test_a_check_over_its_budget_is_unable_and_its_child_is_gone() -> None:
    checker = Checker(seconds=0.05)
    assert (
        checker.check(BUSY, "a").reason == "The check took longer than 0.05 s, which is a fixed limit."
    )  # it would need more than a second
    assert checker.pid is None
    checker.close()


@pytest.mark.parametrize(
    "schema",
    [None, [], {"properties": None}, {"type": "banana"}, {"pattern": "("}, {"$ref": "#/nowhere"}, {"$schema": 3}],
)
def test_a_broken_schema_is_unable_with_a_reason(checker: Checker, schema: Any) -> None:
    verdict = checker.check(schema, {})
    assert verdict.unable
    assert verdict.reason


def test_schemas_and_values_beyond_the_bounds_are_refused_before_the_child_sees_them(checker: Checker) -> None:
    deep: Any = {}
    for _ in range(3000):
        deep = {"items": deep}
    wide = {"properties": {f"p{n}": {} for n in range(1001)}}
    value: Any = []
    for _ in range(100):
        value = [value]
    for schema, instance in ((deep, 1), (wide, {}), ({}, value), ({"title": "x" * (1 << 21)}, 1)):
        assert checker.check(schema, instance).state == "unable"


def test_no_reference_is_ever_fetched(checker: Checker, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text("true")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        schemas: list[Any] = [
            {"$ref": f"{base}/a"},
            {"$id": f"{base}/root", "$ref": "other"},
            {"$schema": f"{base}/dialect"},
            {"$dynamicRef": f"{base}/a"},
            {"properties": {"a": {"$ref": f"{base}/a#/x"}}},
            {"$ref": f"file://{tmp_path}/schema.json"},
        ]
        assert [checker.check(schema, {"a": 1}).state for schema in schemas] == ["unable"] * len(schemas)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_killed_child_is_replaced_and_the_check_answered(checker: Checker) -> None:
    checker.check(NEEDS_THE_CHILD, 1)
    first = checker.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert checker.check({"type": "string"}, 1).state == "invalid"
    assert checker.pid not in {None, first}


def test_a_stopped_child_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servers.schemas.checker_process.TRANSFER_SECONDS", 0.2)
    checker = Checker(seconds=20)
    checker.check(NEEDS_THE_CHILD, 1)
    assert checker.pid is not None
    os.kill(checker.pid, signal.SIGSTOP)
    assert checker.check(NEEDS_THE_CHILD, "x" * 500_000).state == "unable"
    assert checker.pid is None
    checker.close()


def test_many_threads_get_each_their_own_answer(checker: Checker) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = checker.check(NEEDS_THE_CHILD | {"const": number}, number if number % 2 else -1).state

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: "valid" if number % 2 else "invalid" for number in range(24)}


async def test_the_loop_goes_on_while_checks_run_and_too_many_are_refused(checker: Checker) -> None:
    checker.check(NEEDS_THE_CHILD, 1)
    os.kill(checker.pid, signal.SIGSTOP)
    try:
        checks = [
            asyncio.create_task(checker.acheck(NEEDS_THE_CHILD | {"const": n}, n)) for n in range(MAX_WAITING + 20)
        ]
        refused = await asyncio.gather(*checks[MAX_WAITING:])
    finally:
        os.kill(checker.pid, signal.SIGCONT)
    assert [verdict.state for verdict in refused] == ["unable"] * 20
    assert [verdict.state for verdict in await asyncio.gather(*checks[:MAX_WAITING])] == ["valid"] * MAX_WAITING
    assert (await checker.acheck({}, 1)).state == "valid"


def test_the_child_sees_nothing_of_our_environment(checker: Checker, monkeypatch: pytest.MonkeyPatch) -> None:
    checker.check(NEEDS_THE_CHILD, 1)
    environ = Path(f"/proc/{checker.pid}/environ").read_bytes()
    assert {part.partition(b"=")[0] for part in environ.split(b"\0") if part} <= {b"LC_ALL"}


def test_the_child_does_not_outlive_a_process_that_is_killed() -> None:
    code = "from servers.schemas.checker import shared, check\ncheck({'pattern': ''}, 1); print(shared().pid, flush=True); input()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    watch = os.pidfd_open(pid)
    parent.kill()
    parent.communicate()
    ended, _, _ = select.select([watch], [], [], 20)
    os.close(watch)
    assert ended


def test_a_forked_process_gets_a_checker_of_its_own() -> None:
    code = (
        "import os\nfrom servers.schemas.checker import shared, check\n"
        "check({'pattern': ''}, 1); before = shared().pid\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    good = check({'pattern': ''}, 'a').state == 'valid' and shared().pid != before\n"
        "    shared().close(); os._exit(0 if good else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), check({'pattern': ''}, 1).state, shared().pid == before)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["0", "valid", "True"], done.stderr
