"""The peers, on which other tests depend, start, respond, misbehave as requested and stop."""

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.peers import Peer, closed_port, peer_command, run_peer, start_peer
from tests.peers.peers import HERE

pytestmark = [pytest.mark.integration, pytest.mark.long]
CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def message(method: str, request_id: int | None = 1, **params: Any) -> bytes:
    body = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(body if request_id is None else body | {"id": request_id}).encode()


def post(url: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, body, headers)
    opener = urllib.request.build_opener(NoRedirect)
    try:
        with opener.open(request, timeout=5) as response:
            return response.status, dict(response.headers), response.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class StdioPeer:
    def __init__(self, name: str, env: dict[str, str] | None = None) -> None:
        command, args = peer_command(name)
        environment = {"PATH": os.environ["PATH"]} | (env or {})
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([command, *args], env=environment, stdin=pipe, stdout=pipe, stderr=pipe)

    def ask(self, request_id: int, method: str, **params: Any) -> dict[str, Any]:
        self.process.stdin.write(message(method, request_id, **params) + b"\n")
        self.process.stdin.flush()
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == request_id:
                return answer

    def initialize(self) -> dict[str, Any]:
        result = self.ask(0, "initialize", **CLIENT)["result"]
        self.process.stdin.write(message("notifications/initialized", None) + b"\n")
        self.process.stdin.flush()
        return result

    def __enter__(self) -> "StdioPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()


@pytest.mark.parametrize("name", ["sdk2", "sdk1", "sdk1_12", "fastmcp", "everything", "ts", "ts2"])
def test_an_http_peer_answers_a_handshake_and_leaves_nothing_when_stopped(name: str) -> None:
    peer = start_peer(name)
    try:
        status, _, body = post(peer.url, message("initialize", **CLIENT))
        assert (status, b"serverInfo" in body) == (200, True)
    finally:
        peer.stop()
    assert not psutil.pid_exists(peer.pid)


@pytest.mark.parametrize("name", ["sdk2", "sdk1", "fastmcp", "everything", "memory", "github"])
def test_a_stdio_peer_answers_a_handshake(name: str) -> None:
    with StdioPeer(name, {"GITHUB_PERSONAL_ACCESS_TOKEN": "dummy"}) as peer:
        assert peer.initialize()["serverInfo"]["name"]


@pytest.mark.parametrize(
    ("name", "revision", "version"),
    [
        ("sdk1_2", "2024-11-05", "1.2."),
        ("sdk1_8", "2024-11-05", "1.8."),
        ("sdk1_9", "2025-03-26", "1.9."),
        ("sdk1_12", "2025-06-18", "1.12."),
        ("sdk1", "2025-11-25", "1.30."),
        ("ts", "2025-11-25", "1."),
        ("ts2", "2025-11-25", "2."),
    ],
)
def test_each_sdk_answers_with_its_own_newest_legacy_revision(name: str, revision: str, version: str) -> None:
    with StdioPeer(name) as peer:
        answer = peer.initialize()
    assert answer["protocolVersion"] == revision
    assert answer["serverInfo"]["version"].startswith(version)


def test_a_server_with_a_dummy_key_reaches_nothing_outside_of_the_machine() -> None:
    node, _ = peer_command("ts")
    script = "fetch('http://192.0.2.1/').catch((problem) => console.log(String(problem.cause)))"
    command = [node, "--import", str(HERE / "offline.mjs"), "-e", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert "offline" in done.stdout


def test_a_server_that_is_offline_still_reaches_this_machine(evil: Peer) -> None:
    node, _ = peer_command("ts")
    script = f"fetch('{evil.url}/seen').then((answer) => console.log(answer.status))"
    command = [node, "--import", str(HERE / "offline.mjs"), "-e", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.stdout.strip() == "200"


@pytest.mark.parametrize("name", ["sdk2", "sdk1", "fastmcp"])
def test_the_toolbox_works_alike_in_each_sdk(name: str, tmp_path: Path) -> None:
    log = tmp_path / "effects"
    with StdioPeer(name, {"EFFECT_LOG": str(log)}) as peer:
        peer.initialize()

        def call(tool: str, **arguments: Any) -> dict[str, Any]:
            return peer.ask(1, "tools/call", name=tool, arguments=arguments)

        assert call("add", a=2, b=3)["result"]["structuredContent"]["total"] == 5
        assert call("echo", text="ü")["result"]["content"][0]["text"] == "ü"
        assert call("fail", message="as asked")["result"]["isError"] is True
        assert "structuredContent" not in call("big", size=100)["result"]
        assert len(call("big", size=100)["result"]["content"][0]["text"]) == 100
        assert call("image")["result"]["content"][0]["mimeType"] == "image/png"
        assert [call("counter", id=n)["result"]["content"][0]["text"] for n in ("a", "b")] == ["1", "2"]
        assert "<script>" in call("nasty")["result"]["content"][0]["text"]
        uris = [resource["uri"] for resource in peer.ask(2, "resources/list")["result"]["resources"]]
        assert uris == ["peer://clock", "peer://readme"]
    assert [line.split("\t")[0] for line in log.read_text().splitlines()] == ["a", "b"]


@pytest.mark.parametrize("name", ["sdk2", "sdk1"])
def test_rpc_error_is_a_json_rpc_error_with_code_and_data(name: str) -> None:
    with StdioPeer(name) as peer:
        peer.initialize()
        error = peer.ask(1, "tools/call", name="rpc_error", arguments={})["error"]
    assert (error["code"], error["data"]["reason"]) == (-32010, "asked for")


@pytest.fixture(scope="module")
def evil() -> Peer:
    peer = start_peer("evil")
    yield peer
    peer.stop()


@pytest.mark.parametrize(
    ("scenario", "status", "content_type"),
    [
        ("html", 200, "text/html; charset=utf-8"),
        ("401", 401, "application/json"),
        ("403", 403, "text/plain"),
        ("429", 429, "text/plain"),
        ("500", 500, "text/plain"),
        ("redirect", 307, "text/plain"),
        ("redirect-302", 302, "text/plain"),
        ("rubbish", 200, "application/json"),
        ("sse-rubbish", 200, "text/event-stream"),
        ("big", 200, "application/json"),
        ("no-such-scenario", 404, "text/plain"),
        ("mcp", 200, "application/json"),
    ],
)
def test_the_evil_http_peer_misbehaves_by_path(evil: Peer, scenario: str, status: int, content_type: str) -> None:
    answer = post(f"{evil.url}/{scenario}", message("initialize", **CLIENT))
    assert (answer[0], answer[1]["Content-Type"]) == (status, content_type)


def test_the_evil_http_peer_can_wait_for_the_call_before_it_turns_evil(evil: Peer) -> None:
    url = f"{evil.url}/call-401"
    assert post(url, message("initialize", **CLIENT))[0] == 200
    assert post(url, message("tools/list"))[0] == 200
    assert post(url, message("tools/call", name="shout", arguments={"text": "x"}))[0] == 401


def test_the_evil_http_peer_tells_what_it_was_asked(evil: Peer) -> None:
    post(f"{evil.url}/redirect?to=/elsewhere", message("tools/call", name="shout"))
    asked = [(entry["path"], entry["method"]) for entry in evil.seen()]
    assert ("redirect", "tools/call") in asked
    assert "elsewhere" not in {path for path, _ in asked}


def test_the_evil_http_peer_can_reset_and_cut_and_hang(evil: Peer) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        post(f"{evil.url}/refuse", b"{}")
    with pytest.raises(OSError, match="timed out"):
        urllib.request.urlopen(f"{evil.url}/hang", b"{}", timeout=0.3)


def test_nothing_listens_on_a_closed_port() -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", closed_port()), timeout=2)


def test_run_peer_ends_the_peer_with_its_block() -> None:
    with run_peer("evil") as url:
        assert post(f"{url}/mcp", message("ping"))[0] == 200
    with pytest.raises(urllib.error.URLError):
        post(f"{url}/mcp", message("ping"))


def run_evil(scenario: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    command, args = peer_command(f"evil:{scenario}")
    return subprocess.run([command, *args], input=given, capture_output=True, timeout=20)


def test_the_evil_stdio_peer_exits_at_once_with_words_on_stderr() -> None:
    done = run_evil("exit")
    assert (done.returncode, b"cannot read /etc/evil.conf" in done.stderr) == (3, True)


@pytest.mark.parametrize("scenario", ["rubbish", "bytes", "endless-line", "silent"])
def test_an_evil_stdio_peer_that_never_answers_ends_with_its_input(scenario: str) -> None:
    done = run_evil(scenario, message("initialize", **CLIENT) + b"\n")
    assert done.returncode == 0
    assert b'"result"' not in done.stdout
    assert bool(done.stdout) is (scenario != "silent")


def test_the_evil_stdio_peer_answers_a_call_with_nine_mebibytes_on_one_line() -> None:
    done = run_evil("big", message("tools/call", name="big") + b"\n")
    assert len(done.stdout) > 9 * 1024 * 1024
    assert done.stdout.count(b"\n") == 1


def test_the_evil_stdio_peer_dies_in_a_call_and_answers_twice_as_told() -> None:
    call = message("tools/call", name="shout", arguments={"text": "x"}) + b"\n"
    assert run_evil("dies-in-call", call).returncode == 139
    assert run_evil("answers-twice", call).stdout.count(b'"X"') == 2


def test_the_stubborn_peer_survives_sigterm_and_the_end_of_its_input() -> None:
    with StdioPeer("evil:stubborn") as peer:
        peer.initialize()
        peer.process.send_signal(signal.SIGTERM)
        assert peer.ask(1, "ping")["result"] == {}
        peer.process.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            peer.process.wait(0.3)


def test_the_grandchild_of_a_peer_lives_until_its_group_is_killed() -> None:
    with StdioPeer("evil:leaves-grandchild") as peer:
        peer.initialize()
        grandchild = int(peer.process.stderr.readline())
        peer.process.kill()
        peer.process.wait(5)
        assert psutil.pid_exists(grandchild)
        os.kill(grandchild, signal.SIGKILL)
