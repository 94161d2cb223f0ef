"""Starts the peers that tests talk to: real MCP servers in processes of their own.

with run_peer("sdk2", "http", env={"EFFECT_LOG": path}) as url: ...
command, args = peer_command("everything", "stdio")
"""

import json
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
#: the environment of each Python peer, and its script without `_server.py`
PYTHON_PEERS = {
    "sdk2": "sdk2",
    "sdk1": "sdk1",
    "sdk1_12": "sdk1",
    "sdk1_9": "sdk1",
    "sdk1_8": "sdk1",
    "sdk1_2": "sdk1",
    "fastmcp": "fastmcp",
}
#: peers on the TypeScript SDK 1.x and 2.x
NODE_PEERS = {"ts": "ts_server.mjs", "ts2": "ts2_server.mjs"}
#: servers of npm as they are; over stdio, server-everything over HTTP as well
NPM_SERVERS = ("everything", "filesystem", "memory", "github", "brave-search", "google-maps", "slack", "postgres")
PACKAGES = HERE / "node_modules" / "@modelcontextprotocol"
READY_SECONDS = 60.0
STOP_SECONDS = 5.0
_URL = re.compile(r"http://127\.0\.0\.1:\d+\S*")
_EVERYTHING_READY = re.compile(r"(?:listening|running) on port (\d+)")


def free_port() -> int:
    """A port that was free a moment ago; prefer port 0 where the peer can announce its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def closed_port() -> int:
    """A port on which nothing listens: a connection to it is refused."""
    return free_port()


def peer_python(name: str) -> Path:
    """The interpreter of a Python peer's own environment."""
    python = HERE / f".venv-{name}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"the environment of peer {name} is missing: run tests/tools/setup_peers.py")
    return python


def peer_command(name: str, transport: str = "stdio") -> tuple[str, list[str]]:
    """(command, arguments) of a peer, both absolute; `name` is one of PYTHON_PEERS, NODE_PEERS or NPM_SERVERS,
    evil:<scenario of evil_stdio.py>, telltale, asking (stdio) or demo; `transport` stdio, http, for the first two kinds also "all"
    (every HTTP face), for everything also sse. Skips the test when the peer is not installed."""
    if name in NODE_PEERS or name in NPM_SERVERS:
        return _node_command(name, transport)
    if name == "demo":
        return sys.executable, ["-m", "mcpadmin.demo_server"]
    if name.startswith("evil:"):
        return sys.executable, [str(HERE / "evil_stdio.py"), name.removeprefix("evil:")]
    if name == "asking":
        return str(peer_python("sdk2")), [str(HERE / "asking_server.py")]
    if name == "protected":
        return str(peer_python("sdk2")), [str(HERE / "protected_server.py"), "http"]
    if name == "telltale":
        return sys.executable, [str(HERE / "telltale.py"), transport]
    if name == "evil":
        return sys.executable, [str(HERE / "evil_http.py")]
    if name not in PYTHON_PEERS:
        raise ValueError(f"no peer is called {name!r}")
    return str(peer_python(name)), [str(HERE / f"{PYTHON_PEERS[name]}_server.py"), transport]


def _node_command(name: str, transport: str) -> tuple[str, list[str]]:
    node = shutil.which("node")
    script = HERE / NODE_PEERS[name] if name in NODE_PEERS else PACKAGES / f"server-{name}" / "dist" / "index.js"
    if node is None or not PACKAGES.exists() or not script.exists():
        pytest.skip(f"node or the peer {name} is missing: run tests/tools/setup_peers.py")
    if name in NODE_PEERS:
        return node, [str(script), "stdio" if transport == "stdio" else "all"]
    if name == "everything":
        return node, [str(script), {"http": "streamableHttp"}.get(transport, transport)]
    return node, [str(script)]


@dataclass
class Peer:
    """A running HTTP peer."""

    process: subprocess.Popen[str]
    url: str = ""
    lines: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after 5 s; does nothing to a peer that is gone."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def seen(self) -> list[dict]:
        """What the evil HTTP peer was asked so far: dicts of verb, path, method and headers."""
        with urllib.request.urlopen(f"{self.url}/seen", timeout=10) as response:
            return json.load(response)


def start_peer(name: str, transport: str = "http", *, port: int = 0, env: Mapping[str, str] | None = None) -> Peer:
    """Start a peer over HTTP and wait until it accepts connections; the caller stops it."""
    command, args = peer_command(name, transport)
    if name in PYTHON_PEERS or name in NODE_PEERS or name in ("evil", "telltale", "protected"):
        args = [*args, "--port", str(port)]
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
    if name == "everything":
        environment["PORT"] = str(port or free_port())
    process = subprocess.Popen(
        [command, *args],
        env=environment | dict(env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    peer = Peer(process)
    try:
        peer.url = _await_url(peer)
    except BaseException:  # whatever went wrong, no process is left behind
        peer.stop()
        raise
    return peer


@contextmanager
def run_peer(
    name: str, transport: str = "http", *, port: int = 0, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The URL of a peer that runs as long as the block; `evil` yields its base URL (add the scenario)."""
    if transport != "http":
        raise ValueError("stdio peers are started by their client: use peer_command()")
    peer = start_peer(name, port=port, env=env)
    try:
        yield peer.url
    finally:
        peer.stop()


def _await_url(peer: Peer) -> str:
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_drain, args=(peer, lines), daemon=True).start()
    deadline = time.monotonic() + READY_SECONDS
    while (line := _next_line(lines, deadline)) is not None:
        if ready := _EVERYTHING_READY.search(line):
            return f"http://127.0.0.1:{ready[1]}/mcp"
        if ready := _URL.match(line):
            return ready[0]
    raise RuntimeError(f"the peer did not become ready; its stderr:\n{''.join(peer.lines[-40:])}")


def _next_line(lines: "queue.Queue[str | None]", deadline: float) -> str | None:
    try:
        return lines.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        return None


def _drain(peer: Peer, lines: "queue.Queue[str | None]") -> None:
    """Read stderr to its end, so that the peer never blocks on a full pipe."""
    assert peer.process.stderr is not None
    for line in peer.process.stderr:
        peer.lines.append(line)
        lines.put(line)
    lines.put(None)
