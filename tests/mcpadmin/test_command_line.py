"""The command `mcpadmin` against a scripted endpoint: what it does when its surroundings fail."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from argparse import Namespace
from collections.abc import Callable, Coroutine, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import pytest

from mcpadmin.command_line import arguments, verbs
from mcpadmin.command_line.connecting import LIMITS, Connection
from mcpadmin.command_line.exit_status import Ending, ExitStatus, ending_of, status_of
from mcpadmin.command_line.output import Output
from servers.validators.limits import LIMITS as BOUNDS
from sessions.mcp.core.errors import Fault, HttpError, RpcError, TransportError
from sessions.mcp.core.events import ResourceUpdated
from sessions.mcp.core.limits import Limits
from tests.tools.prepared import ROOT, clean_environment
from tests.tools.warm_program import Program

pytestmark = pytest.mark.integration
TOKEN = "mca_" + "a" * 12 + "_" + "b" * 43
CAPABILITIES = {"tools": {}, "resources": {"subscribe": True, "listChanged": True}}


class Peer(ThreadingHTTPServer):
    """Answers as the endpoint for agents does, as far as one call needs it. `page`: what the HTTP API answers,
    `refused`: how a call ends, if with an error, `result`: how it ends otherwise, `listed`: each page of a list."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.called: list[Any] = []
        self.page: tuple[int, dict[str, str], bytes] = (200, {}, b"{}")
        self.refused: tuple[int, dict[str, Any]] | None = None
        self.result: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
        self.listed: dict[str, Any] = {}
        self.deleted: Callable[[], None] = lambda: None


class Handler(BaseHTTPRequestHandler):
    server: Peer

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self.answer(*self.server.page)

    def do_DELETE(self) -> None:
        self.server.deleted()
        self.answer(204)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            return self.answer(202)
        result = self.server.listed if message["method"].endswith("/list") else self.server.result
        if message["method"] == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES} | {
                "serverInfo": {"name": "peer", "version": "1"}
            }
        else:
            self.server.called.append(message.get("params"))
        status, outcome = 200, {"result": result}
        headers = {"Content-Type": "application/json", "Mcp-Session-Id": "s1"}
        if message["method"] == "tools/call":
            headers["Mcpadmin-Call"] = "c1"
            if self.server.refused is not None:
                status, outcome = self.server.refused
        self.answer(status, headers, json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode())

    def answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def start(peer: Peer, *words: str, env: dict[str, str] | None = None, **files: IO[str]) -> Program:
    return Program(words, environment_of(peer, env or {}), **files)


def start_python(peer: Peer, *words: str, env: dict[str, str]) -> "subprocess.Popen[str]":
    """For what Python reads when it starts."""
    return subprocess.Popen(
        [sys.executable, "-m", "mcpadmin", *words], cwd=ROOT, text=True, env=environment_of(peer, env),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def environment_of(peer: Peer, more: dict[str, str]) -> dict[str, str]:
    return clean_environment(**{"MCPADMIN_URL": peer.url, "MCPADMIN_TOKEN": TOKEN, **more})


def ended(process: "Program | subprocess.Popen[str]") -> tuple[int, str, dict[str, Any]]:
    """Exit status, stdout, and the problem that stderr names."""
    written, said = process.communicate(timeout=60)
    lines = [json.loads(line) for line in said.splitlines()]
    return process.returncode, written or "", lines[-1]["error"] if lines else {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_waits_for_standard_input_can_be_interrupted(peer: Peer, number: int, tmp_path: Path) -> None:
    fifo = tmp_path / "arguments"
    os.mkfifo(fifo)
    process = start(peer, "call", "files", "read", "--json", f"@{fifo}")
    with fifo.open("w"):  # opens once the command reads
        process.send_signal(number)
        status, _, error = ended(process)
    assert (status, error["status"], peer.called) == (130, "interrupted", [])


def test_a_token_file_wins_over_the_option_and_the_option_over_the_variable(peer: Peer, tmp_path: Path) -> None:
    empty = tmp_path / "token"
    empty.write_text("")
    call = ("call", "files", "read", "--token", "with a space")
    by_option, by_file = start(peer, *call), start(peer, *call, "--token-file", str(empty))
    assert (
        ended(by_option)[2]["message"]
        == "The token contains characters that are not allowed in a token, such as spaces."
    )
    assert ended(by_file)[2]["message"].startswith("No token.")
    assert peer.called == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--token-file", "", "--token", TOKEN), "--token-file: the file name is empty."),
        (("--token", ""), "No token."),
    ],
)
def test_an_empty_variable_in_place_of_a_token_does_not_lead_to_another_token(
    peer: Peer, words: tuple[str, ...], said: str
) -> None:
    status, _, error = ended(start(peer, "call", "files", "read", *words))
    assert (status, error["message"].startswith(said), peer.called) == (2, True, [])


@pytest.mark.parametrize("key", ["", " a", "a ", "a" * 129, "schlüssel", "a\nb", "a\n"])
def test_what_can_be_no_key_is_refused_instead_of_called_without_one(peer: Peer, key: str) -> None:
    process = start(peer, "call", "files", "read", "--idempotency-key", key)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, peer.called) == (2, [])
    assert "the key must be 1 to 128 ASCII characters" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_result_that_the_disk_does_not_take_is_no_error_of_the_tool(peer: Peer) -> None:
    with open("/dev/full", "w") as full:
        status, _, error = ended(start(peer, "call", "files", "read", stdout=full))
    assert (status, error["status"], error["call"]) == (5, "outcome_unknown", "c1")
    assert "No space left on device" in error["message"]
    assert len(peer.called) == 1


def test_files_are_utf_8_whatever_the_locale_says(peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "arguments.json").write_bytes('{"name": "Zoë"}'.encode())
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ("call", "files", "read", "--json", f"@{tmp_path / 'arguments.json'}")
    assert ended(start_python(peer, *words, env=plain))[0] == 0
    process = start_python(peer, *words[:-1], "-", env=plain)
    assert process.stdin is not None
    process.stdin.buffer.write('{"name": "Zoë"}'.encode())
    assert ended(process)[0] == 0
    assert [call["arguments"] for call in peer.called] == [{"name": "Zoë"}] * 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"path": "a", "path": "b"}', "an object names one key twice"),
        ('{"n": NaN}', "NaN is not JSON"),
        ('{"n": 1e999}', "a number is too large"),
        ('{"t": "\\ud800"}', "an unpaired surrogate"),
        ("[" * 100_000, "nested"),
        ("{", "not valid JSON"),
        ("[1]", "must be a JSON object"),
    ],
)
def test_arguments_that_are_no_json_are_a_mistake_of_the_command_line(text: str, words: str) -> None:
    """Refused as mcpadmin would refuse them: a duplicate key would be sent with its last value."""
    with pytest.raises(Ending, match=words) as ended_so:
        verbs._object(text)
    assert ended_so.value.status is ExitStatus.USAGE


def test_a_result_that_came_counts_although_the_end_of_the_session_is_interrupted(peer: Peer) -> None:
    begun, over = threading.Event(), threading.Event()

    def interrupt() -> None:
        begun.wait(60)
        process.send_signal(signal.SIGINT)
        over.wait(60)

    peer.deleted = interrupt
    process = start(peer, "call", "files", "read")
    begun.set()
    status, written, error = ended(process)
    over.set()
    assert (status, json.loads(written)["content"][0]["text"], error) == (0, "done", {})


@pytest.mark.parametrize("status", [200, 401])
def test_a_token_that_ends_during_a_call_leaves_its_outcome_unknown(peer: Peer, status: int) -> None:
    """200: in the stream of an answer that had begun."""
    peer.refused = status, {"error": {"code": 4010, "message": "This token is unknown, expired, revoked."}}
    found, _, error = ended(start(peer, "call", "files", "read"))
    assert (found, error["status"], error["call"]) == (5, "outcome_unknown", "c1")


@pytest.mark.parametrize(
    ("code", "status", "name"),
    [(-32602, 7, "failed"), (-32603, 7, "failed"), (5030, 5, "outcome_unknown"), (4290, 5, "outcome_unknown")],
)
def test_an_error_of_the_server_never_says_that_nothing_reached_it(
    peer: Peer, code: int, status: int, name: str
) -> None:
    peer.refused = 200, {"error": {"code": code, "message": "No."}}
    found, _, error = ended(start(peer, "call", "files", "read"))
    assert (found, error["status"], error["call"]) == (status, name, "c1")


@pytest.mark.parametrize(("code", "status"), [(4030, ExitStatus.REFUSED), (4250, ExitStatus.UNAVAILABLE)])
def test_a_rule_that_denies_a_prompt_or_asks_about_it_is_no_failure_of_the_server(
    code: int, status: ExitStatus
) -> None:
    assert ending_of(RpcError(code, "Rule “Deny *” of the endpoint Files.")).status is status


def test_a_call_that_may_have_been_placed_although_mcpadmin_refused_it_is_none_to_repeat() -> None:
    refusal = RpcError(-32603, "Check whether the change was made.", {"retrySafe": False}, http_status=503)
    assert ending_of(refusal, calling=True).status is ExitStatus.OUTCOME_UNKNOWN
    assert ending_of(refusal).status is ExitStatus.UNAVAILABLE  # a list, for example


def test_a_call_that_waits_for_approval_may_be_made_again_and_names_itself() -> None:
    """An error result from mcpadmin, not from the tool."""
    meta = {"mcpadmin/call": "c1", "mcpadmin/outcome": "held", "mcpadmin/mayHaveRun": False}
    result = {"content": [], "isError": True, "_meta": meta}
    assert status_of(result, call="c1") == (ExitStatus.UNAVAILABLE, "c1")


@pytest.mark.parametrize(
    ("meta", "status"),
    [
        ({"mcpadmin/call": "c0", "mcpadmin/outcome": "sent", "mcpadmin/mayHaveRun": False}, ExitStatus.OUTCOME_UNKNOWN),
        (
            {"mcpadmin/call": "c0", "mcpadmin/outcome": "requested", "mcpadmin/mayHaveRun": False},
            ExitStatus.OUTCOME_UNKNOWN,
        ),
        ({"mcpadmin/outcome": "not_sent", "mcpadmin/mayHaveRun": False}, ExitStatus.UNAVAILABLE),
        ({}, ExitStatus.REFUSED),
    ],
    ids=["an earlier call runs", "an earlier call was cancelled", "too many wait for approval", "a rule"],
)
def test_a_request_that_became_no_call_says_whether_it_may_be_made_again(
    meta: dict[str, Any], status: ExitStatus
) -> None:
    result = {"content": [], "isError": True, "_meta": meta}
    assert status_of(result, call="") == (status, meta.get("mcpadmin/call", ""))


def test_a_key_that_was_used_for_other_arguments_is_refused() -> None:
    assert ending_of(RpcError(4091, "This id or key was already used."), calling=True).status is ExitStatus.REFUSED


@pytest.mark.parametrize(
    ("outcome", "status"), [("not_sent", ExitStatus.TOOL_ERROR), ("outcome_unknown", ExitStatus.OUTCOME_UNKNOWN)]
)
def test_a_server_cannot_say_in_mcpadmins_name_that_a_call_may_be_repeated(outcome: str, status: ExitStatus) -> None:
    """A mcpadmin behind this one may say that it does not know."""
    result = {"content": [], "isError": True, "_meta": {"mcpadmin/call": "forged", "mcpadmin/outcome": outcome}}
    assert status_of(result, call="c1") == (status, "c1")


@pytest.mark.parametrize(
    ("closed", "words", "status", "called"),
    [(">&-", "", 2, 0), ("2>&-", "", 0, 1), (">&- 2>&-", "", 2, 0), ("<&-", "--json -", 2, 0)],
)
def test_a_closed_stream_is_no_error_of_the_tool(peer: Peer, closed: str, words: str, status: int, called: int) -> None:
    """1 would say that the tool ran and reported an error."""
    environment = clean_environment(MCPADMIN_URL=peer.url, MCPADMIN_TOKEN=TOKEN)
    command = f'exec "$0" -m mcpadmin call files read {words} {closed}'
    found = subprocess.run(["sh", "-c", command, sys.executable], cwd=ROOT, env=environment, capture_output=True)
    assert (found.returncode, len(peer.called)) == (status, called), found.stderr


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"items": 1}', b"<html>"])
def test_an_address_of_something_else_is_said_to_be_one(peer: Peer, body: bytes) -> None:
    peer.page = (200, {"Content-Type": "application/json"}, body)
    status, _, error = ended(start(peer, "list"))
    assert (status, error["status"]) == (7, "failed")
    assert "not from mcpadmin" in error["message"]


def test_a_redirect_is_not_followed_and_names_the_address(peer: Peer) -> None:
    peer.page = (301, {"Location": "https://mcp.example.org/api/v1/servers"}, b"")
    status, _, error = ended(start(peer, "list"))
    assert (status, error["status"]) == (3, "refused")
    assert "https://mcp.example.org/" in error["message"]


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://127.0.0.1:port", "http://127.0.0.1:99999", "http://u:hunter2@127.0.0.1", "", "x://y"]
)
def test_what_is_no_address_is_refused_before_anything_is_sent(peer: Peer, url: str) -> None:
    status, _, error = ended(start(peer, "list", "--url", url))
    assert (status, error["status"]) == (2, "usage")
    assert "hunter2" not in error["message"]


@pytest.mark.parametrize("words", [("--token", TOKEN, "list"), ("list", "--tok=" + TOKEN), ("call", "a", "b", TOKEN)])
def test_a_token_at_the_wrong_place_is_not_repeated(peer: Peer, words: tuple[str, ...]) -> None:
    process = start(peer, *words)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, TOKEN in said, "usage:" in said) == (2, False, True)


class Reads:
    """A client whose reads end with `problem`."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem

    async def read_resource(self, uri: str) -> dict[str, Any]:
        raise self.problem


def watching() -> verbs._Watching:
    given = arguments.parse(["watch", "files", "peer://a", "--read", "--count", "1", "--output", "json"])
    return verbs._Watching(given, Output("json"))


async def test_a_change_whose_contents_are_refused_is_reported_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    watched = watching()
    await watched._received(Reads(RpcError(-32002, "It is gone.")), ResourceUpdated("peer://a"))
    assert json.loads(capsys.readouterr().out) == {
        "event": "resource_updated", "uri": "peer://a", "reason": "It is gone.",
    }  # fmt: skip
    assert watched._left == 0


async def test_a_change_that_could_not_be_told_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    watched, lost = watching(), TransportError(Fault.CONNECTION_LOST, "The connection ended.", may_have_run=True)
    with pytest.raises(TransportError):
        await watched._received(Reads(lost), ResourceUpdated("peer://a"))
    assert (watched._left, capsys.readouterr().out) == (1, "")


@pytest.mark.parametrize(
    ("calling", "printed", "status"),
    [(False, None, 130), (True, None, 5), (True, ExitStatus.SUCCESS, 0)],
    ids=["nothing was called", "a call was sent", "its result was written"],
)
def test_an_interruption_while_the_event_loop_ends_says_what_became_of_the_call(
    calling: bool, printed: ExitStatus | None, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop gives the signals back before its end, for a moment that no process can be made to wait in."""

    def interrupted(running: Coroutine[Any, Any, Any]) -> None:
        running.close()
        raise KeyboardInterrupt

    reached = Connection("http://127.0.0.1:9", "mca_x", calling=calling, printed=printed)
    monkeypatch.setattr(verbs, "_read", lambda given: reached)
    monkeypatch.setattr(asyncio, "run", interrupted)
    assert verbs.run(Namespace(output="json", timeout=None)) == status


def test_text_of_a_server_moves_no_cursor_in_json_either(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a\u009b2J": "\x1b[2J \x7f \u202e \U000e0041 é\t😀"}
    Output("json").record(value)
    line = capsys.readouterr().out
    assert json.loads(line) == value
    assert "\\u009b2J" in line
    assert "é" in line
    assert all(char.isprintable() for char in line.rstrip("\n"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["watch", "files", "--count", "0"], "'0' is not a whole number greater than 0"),
        (["watch", "files", "--timeout", "soon"], "'soon' is not a number of seconds greater than 0"),
    ],
)
def test_a_number_that_cannot_be_used_is_refused_in_words(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        arguments.parse(words)
    assert said in capsys.readouterr().err


def test_an_empty_address_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPADMIN_URL", "")
    assert arguments.parse(["list"]).url == arguments.DEFAULT_URL


#: what Python has on Linux only
LINUX_ONLY = {
    "os": ["O_PATH", "O_TMPFILE", "MFD_CLOEXEC", "fdatasync", "memfd_create", "pidfd_open", "setresgid", "setresuid"],
    "select": ["epoll"],
    "signal": ["pidfd_send_signal"],
    "socket": ["TCP_KEEPIDLE"],
}


def test_everything_can_be_loaded_where_python_lacks_what_only_linux_has(tmp_path: Path) -> None:
    """As on macOS."""
    removed = "".join(
        f"import {module}\n{module}.__dict__.pop({name!r}, None)\n"
        for module, names in LINUX_ONLY.items()
        for name in names
    )
    loaded = "import mcpadmin.command_line.verbs, mcpadmin.up.supervisor\nimport django; django.setup()\nimport sessions.host.boot"
    environment = clean_environment(DJANGO_SETTINGS_MODULE="mcpadmin.settings", MCPADMIN_DATA_DIR=str(tmp_path))
    subprocess.run([sys.executable, "-c", removed + loaded], cwd=ROOT, env=environment, check=True)


def test_an_installation_that_cannot_be_loaded_is_no_error_of_the_tool() -> None:
    """1 would say that the tool ran and reported an error."""
    code = "import sys; sys.modules['httpx'] = None; from mcpadmin.command_line.program import main; main()"
    words = [sys.executable, "-c", code, "call", "files", "read"]
    done = subprocess.run(words, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, "httpx" in done.stderr) == (7, True)


def test_a_result_larger_than_the_usual_limit_is_written_since_mcpadmin_allowed_it(peer: Peer) -> None:
    text = "x" * (13 * 1024 * 1024)
    peer.result = {"content": [{"type": "text", "text": text}]}
    status, written, error = ended(start(peer, "call", "files", "read"))
    assert (status, error) == (0, {})
    assert json.loads(written) == peer.result


def test_a_list_that_is_cut_ends_as_a_failure_and_says_so_to_a_program_too(peer: Peer) -> None:
    """The peer repeats a cursor."""
    peer.listed = {"tools": [{"name": "read", "inputSchema": {"type": "object"}}], "nextCursor": "again"}
    process = start(peer, "list", "files", "--kind", "tools")
    written, said = process.communicate(timeout=60)
    lines = [json.loads(line) for line in said.splitlines()]
    assert (process.returncode, json.loads(written)["definition"]["name"]) == (7, "read")
    assert {"warning": "tools: The server repeats a cursor."} in lines
    assert lines[-1] == {"error": {"status": "failed", "message": "The list is incomplete: tools."}}


def test_the_command_takes_whatever_a_limit_of_mcpadmin_can_be_set_to() -> None:
    bounded = [name for name, limit in BOUNDS.items() if getattr(LIMITS, name) != getattr(Limits(), name)]
    assert {name: getattr(LIMITS, name) for name in bounded} == {name: BOUNDS[name].most for name in bounded}
    assert {"message_bytes", "message_values", "depth", "list_items", "list_pages", "list_bytes"} <= set(bounded)


@pytest.mark.parametrize("words", ["This token is for another endpoint.", ""])
@pytest.mark.parametrize("calling", [True, False])
def test_why_a_token_is_refused_is_what_mcpadmin_says(words: str, calling: bool) -> None:
    error = HttpError(Fault.UNAUTHORIZED, f"HTTP 401. {words}", status=401, may_have_run=False, words=words)
    ending = ending_of(error, call="c1" if calling else "", calling=calling)
    assert ending.status is (ExitStatus.OUTCOME_UNKNOWN if calling else ExitStatus.REFUSED)
    assert ending.words.startswith(
        words or ("This token is no longer valid." if calling else "mcpadmin does not accept")
    )


def test_a_token_of_another_network_is_told_so(peer: Peer) -> None:
    words = "This token is unknown, expired, revoked or not allowed from this address."
    body = json.dumps({"error": {"code": "unauthorized", "message": words}}).encode()
    peer.page = (401, {"Content-Type": "application/json", "WWW-Authenticate": "Bearer"}, body)
    status, _, error = ended(start(peer, "list"))
    assert (status, error["message"]) == (3, words)


@pytest.mark.parametrize("message", ["x" * 100, "漢" * 100], ids=["narrow characters", "wide characters"])
def test_progress_stays_on_one_line_of_a_terminal_while_stdout_is_a_pipe(message: str) -> None:
    code = f"from mcpadmin.command_line.output import Output; Output(None).progress(1234567, None, {message!r})"
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with open(ours, "rb", buffering=0) as screen, open(theirs, "w") as terminal:
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=terminal, check=True)
        drawn = screen.read(10_000).decode().removeprefix("\r\x1b[K")
    assert drawn.startswith("1234567  ")
    assert 37 <= sum(2 if char == "漢" else 1 for char in drawn) <= 39
