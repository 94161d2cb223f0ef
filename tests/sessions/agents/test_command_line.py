"""The command `mcpadmin` against a running product: what it prints, how it ends, and what the ledger holds then."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sessions.agents.product import Product
from tests.sessions.host.harness import eventually
from tests.tools.prepared import ROOT, clean_environment
from tests.tools.warm_program import Program

pytestmark = pytest.mark.up
UNREACHABLE = "http://127.0.0.1:9"
#: a session reads tools, resources and prompts in this order
LAST_LIST_IS_READ = """
    SELECT 1 FROM servers_definition JOIN servers_server ON servers_server.id = servers_definition.server_id
    WHERE servers_server.slug = ? AND servers_definition.kind = 'prompt'
"""
FIRST_TOOL = """
    SELECT servers_definition.id, digest FROM servers_definition
    JOIN servers_server ON servers_server.id = servers_definition.server_id
    WHERE servers_server.slug = ? AND servers_definition.kind = 'tool' ORDER BY position
"""


class Command:
    """Starts `mcpadmin` as a pipeline does. The token is in the environment unless a test says otherwise."""

    def __init__(self, product: Product, token: str) -> None:
        self.product, self.token = product, token

    def environment(self, **more: str) -> dict[str, str]:
        return clean_environment(MCPADMIN_URL=self.product.stack.base_url, MCPADMIN_TOKEN=self.token, **more)

    def start(self, *words: str) -> Program:
        return Program(words, self.environment())

    def run(self, *words: str, stdin: str = "") -> tuple[int, list[Any], list[Any]]:
        """Exit status, and the JSON Lines of stdout and stderr."""
        return finished(self.start(*words), stdin)


def finished(process: "Program | subprocess.Popen[str]", stdin: str = "") -> tuple[int, list[Any], list[Any]]:
    written, said = process.communicate(stdin, timeout=60)
    return process.returncode, lines_of(written), lines_of(said)


def lines_of(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def token(product: Product) -> str:
    return product.token(label="pipeline")


@pytest.fixture
def command(product: Product, token: str) -> Command:
    return Command(product, token)


def test_a_call_prints_its_result_and_progress_as_json_lines_and_the_ledger_names_the_program(
    product: Product, command: Command
) -> None:
    arguments = json.dumps({"steps": 3, "delay": 0.05})
    status, (result,), told = command.run("call", "legacy", "slow", "--json", "-", stdin=arguments)
    assert (status, result["content"][0]["text"]) == (0, "done after 3 steps")
    assert [line["progress"] for line in told] == [1, 2, 3]
    row = product.calls(target="slow")[-1]
    assert (row["program"].split()[0], row["token_name"], row["state"]) == ("mcpadmin", "pipeline", "succeeded")


@pytest.mark.parametrize(
    ("words", "status", "name"),
    [
        (("call", "legacy", "fail", "--json", '{"message": "no"}'), 1, ""),
        (("call", "legacy", "echo", "--json", "[1]"), 2, "usage"),
        (("call", "legacy", "echo", "--json", '{"other": 1}'), 3, "refused"),
        (("call", "legacy", "absent"), 3, "refused"),
        (("call", "absent", "echo"), 3, "refused"),
        (("read", "legacy", "peer://absent"), 3, "refused"),
        (("list", "legacy", "--url", UNREACHABLE), 4, "unavailable"),
        (("call", "legacy", "echo", "--url", "http://192.0.2.1"), 2, "usage"),
        (("call", "legacy", "echo", "--token-file", "/absent"), 2, "usage"),
    ],
)
def test_each_way_to_end_has_its_exit_status(command: Command, words: tuple[str, ...], status: int, name: str) -> None:
    found, _, said = command.run(*words)
    assert (found, [line["error"]["status"] for line in said]) == (status, [name] if name else [])


def test_a_token_that_does_not_count_or_lacks_a_scope_is_refused_before_anything_is_sent(
    product: Product, command: Command
) -> None:
    before = len(product.calls())
    for token in ("mca_" + "a" * 12 + "_" + "b" * 43, product.token("list", label="lists only")):
        status, _, (said,) = command.run("call", "legacy", "echo", "--token-file", "-", stdin=token)
        assert (status, said["error"]["status"]) == (3, "refused")
    assert "mcp:call" in said["error"]["message"]
    assert len(product.calls()) == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_process_listing_shows_the_token(product: Product, command: Command) -> None:
    words = ("call", "legacy", "slow", "--json", '{"steps": 100, "delay": 0.1}', "--token", command.token)
    known = len(product.calls(target="slow"))
    process = subprocess.Popen(
        [sys.executable, "-m", "mcpadmin", *words], cwd=ROOT, env=command.environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    eventually(lambda: len(product.calls(target="slow")) > known)
    proc = Path(f"/proc/{process.pid}")
    shown = (proc / "cmdline").read_bytes()
    if os.geteuid() == 0:  # no other user may read it
        shown += (proc / "environ").read_bytes()
    assert b"--token" in shown
    assert command.token.encode() not in shown
    process.send_signal(signal.SIGTERM)
    assert finished(process)[0] == 5


def test_an_interrupted_call_is_cancelled_and_ends_as_unknown_with_its_id(product: Product, command: Command) -> None:
    known = {row["uid"] for row in product.calls()}
    process = command.start("call", "modern", "slow", "--json", '{"steps": 300, "delay": 0.1}')

    def new(**columns: Any) -> list[Any]:
        return [row for row in product.calls(target="slow", **columns) if row["uid"] not in known]

    eventually(lambda: [row for row in new(state="sent") if row["progress"]])  # so the command knows the call's id
    process.send_signal(signal.SIGINT)
    status, written, said = finished(process)
    error = said[-1]["error"]
    assert (status, written, error["status"]) == (5, [], "outcome_unknown")
    (row,) = eventually(lambda: new(state="cancelled"))
    assert error["call"].replace("-", "") == str(row["uid"]).replace("-", "")
    assert error["page"] == f"{product.stack.base_url}/calls/{error['call']}/"
    status, _, said = command.run(
        *["call", "legacy", "slow", "--timeout", "2", "--json"], '{"steps": 300, "delay": 0.1}'
    )
    assert (status, said[-1]["error"]["status"]) == (6, "timeout")


def test_a_call_whose_worker_dies_is_sent_once_and_ends_as_unknown(product: Product, command: Command) -> None:
    process = command.start("call", "legacy", "counter", "--json", '{"id": "worker-ended", "delay": 60}')
    eventually(lambda: product.effects.exists() and "worker-ended" in product.effects.read_text())
    product.stack.kill_worker()
    status, _, said = finished(process)
    assert (status, said[-1]["error"]["status"], bool(said[-1]["error"]["call"])) == (5, "outcome_unknown", True)
    eventually(lambda: product.stack.worker_pids())
    assert command.run("call", "legacy", "echo", "--json", '{"text": "back"}')[0] == 0
    assert product.effects.read_text().count("worker-ended") == 1


def test_a_call_outlives_the_web_process_and_is_sent_once(product: Product, command: Command) -> None:
    arguments = '{"id": "command-resumed", "delay": 4}'
    process = command.start("call", "legacy", "counter", "--json", arguments)
    eventually(lambda: product.effects.exists() and "command-resumed" in product.effects.read_text())
    os.kill(product.stack.part("mcpadmin.web.daphne")[0].pid, signal.SIGKILL)
    status, (result,), _ = finished(process)
    assert (status, bool(result["content"][0]["text"])) == (0, True)
    assert product.effects.read_text().count("command-resumed") == 1


def test_the_same_key_is_answered_by_the_call_of_before(product: Product, command: Command) -> None:
    words = ("call", "legacy", "counter", "--json", '{"id": "command-keyed"}', "--idempotency-key", "nightly-1")
    first, again = command.run(*words), command.run(*words)
    assert (first[0], again[1]) == (0, first[1])
    assert product.effects.read_text().count("command-keyed") == 1


def test_lists_resources_and_prompts_are_read(command: Command) -> None:
    status, servers, _ = command.run("list")
    assert (status, {"legacy", "modern"} <= {one["slug"] for one in servers}) == (0, True)
    status, lines, _ = command.run("list", "legacy", "--kind", "tools", "--kind", "prompts")
    named = {(line["kind"], line["definition"]["name"]) for line in lines}
    assert (status, {("tools", "echo"), ("prompts", "summarise")} <= named) == (0, True)
    assert command.run("read", "legacy", "peer://readme")[1][0]["contents"][0]["text"].startswith("# A peer")
    raw = command.start("read", "legacy", "peer://readme", "--raw").communicate(timeout=30)[0]
    assert raw == "# A peer\n\nA real MCP server for tests."
    status, (prompt,), _ = command.run("prompt", "modern", "summarise", "--json", '{"text": "this"}')
    assert (status, prompt["messages"][0]["content"]["text"]) == (0, "Summarise in a short way: this")


def test_watch_reports_a_change_as_it_happens(product: Product, command: Command) -> None:
    assert command.run("list", "ours", "--kind", "tools")[0] == 0  # opens the session, whose first reading is a change
    eventually(lambda: product.stack.rows(LAST_LIST_IS_READ, "ours"))
    process = command.start("watch", "ours", "--count", "1")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == {"event": "following"}
    pk, digest = product.stack.rows(FIRST_TOOL, "ours")[0]
    change = (
        "from servers.models import Definition; from sessions import hints\n"
        "d = Definition.objects.select_related('server').get(pk={pk})\n"
        "Definition.objects.filter(pk=d.pk).update(digest={digest!r})\n"
        "hints.session_changed(d.server.uid, kind='catalog'); hints.flush()"
    )
    product.stack.shell(change.format(pk=pk, digest="e" * 64))
    status, lines, _ = finished(process)
    # Otherwise the next reading of the list would be a change to the calls of other tests.
    product.stack.shell(change.format(pk=pk, digest=digest))
    assert (status, lines) == (0, [{"event": "list_changed", "list": "tools"}])


def test_on_a_terminal_a_person_reads_text_and_hostile_characters_are_visible(command: Command) -> None:
    arguments = json.dumps({"text": "red \x1b[31m alert"})
    written = "".join(on_terminal(command, "call", "legacy", "echo", "--json", arguments))
    assert "red [U+001B][31m alert" in written
    drawn = "".join(on_terminal(command, "call", "legacy", "slow", "--json", '{"steps": 2, "delay": 0.05}'))
    assert "[##########..........]  50%  step 1 of 2" in drawn
    assert "done after 2 steps" in drawn


def on_terminal(command: Command, *words: str) -> Iterator[str]:
    leading, following = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mcpadmin", *words],
        cwd=ROOT, env=command.environment(), stdin=subprocess.DEVNULL, stdout=following, stderr=following,
    )  # fmt: skip
    os.close(following)
    with open(leading, "rb") as terminal:
        while True:
            try:
                data = os.read(terminal.fileno(), 4096)
            except OSError:  # the terminal is closed on its other side
                break
            if not data:
                break
            yield data.decode(errors="replace")
    assert process.wait(30) == 0
