"""Starts the peers that tests talk to: real MCP servers in separate processes.

with run_peer("sdk2", "http", env={"EFFECT_LOG": path}) as url: ...
command, args = peer_command("everything", "stdio")
"""

import json
import os
import queue
import re
import shlex
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
NODE_PEERS = {"ts": "ts_server.mjs", "ts2": "ts2_server.mjs", "conformance": "conformance_server.mjs"}
#: unmodified npm servers over stdio; server-everything also over HTTP
NPM_SERVERS = ("everything", "filesystem", "memory", "github", "brave-search", "google-maps", "slack", "postgres")
#: programs that bridge transports, and a server written in Go; from npm or the environment `bridges`
BRIDGES = ("supergateway", "mcp-proxy", "mcp-remote", "mcp-grafana")
READY_SECONDS = 60.0
STOP_SECONDS = 5.0
_URL = re.compile(r"http://127\.0\.0\.1:\d+\S*")
_EVERYTHING_READY = re.compile(r"(?:listening|running) on port (\d+)")


def free_port() -> int:
    """A port that was free a moment ago. Prefer port 0 where the peer announces its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def closed_port() -> int:
    """A port on which nothing listens, so it refuses connections."""
    return free_port()


def peer_python(name: str) -> Path:
    """The interpreter of a Python peer's environment."""
    python = HERE / f".venv-{name}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"the environment of peer {name} is missing: run tests/tools/setup_peers.py --all")
    return python


def npm_package(name: str) -> Path:
    """Its folder. Those that only long tests use are in a folder of their own, so that `make test` installs less."""
    package = HERE / "node_modules" / name
    return package if package.exists() else HERE / "long" / "node_modules" / name


def peer_command(name: str, transport: str = "stdio") -> tuple[str, list[str]]:
    """(command, arguments) of a peer, both absolute. Skips the test when the peer is not installed.

    `name` is one of PYTHON_PEERS, NODE_PEERS, NPM_SERVERS or BRIDGES, evil:<scenario of evil_stdio.py>, telltale, media,
    large, demo, evil, protected, slow-start or asking (stdio). `transport` is stdio or http; for the first two kinds also "all"
    (every HTTP face), for everything also sse, for bridges the name that the bridge uses."""
    if name in NODE_PEERS or name in NPM_SERVERS:
        return _node_command(name, transport)
    if name in BRIDGES:
        return _bridge_command(name, transport)
    if name == "slow-start":
        return sys.executable, [str(HERE / "slow_start.py"), *_words(peer_command("sdk1"))]
    if name == "demo":
        return sys.executable, [str(HERE.parents[1] / "mcpadmin" / "demo_server")]
    if name.startswith("evil:"):
        return sys.executable, [str(HERE / "evil_stdio.py"), name.removeprefix("evil:")]
    if name == "asking":
        return str(peer_python("sdk2")), [str(HERE / "asking_server.py")]
    if name == "large":
        return str(peer_python("sdk2")), [str(HERE / "large_server.py")]
    if name in ("sdk1-tasks", "sdk2-tasks"):
        python = peer_python(name.partition("-")[0])
        return str(python), [str(HERE / f"{name.replace('-', '_')}.py"), "http"]
    if name == "protected":
        return str(peer_python("sdk2")), [str(HERE / "protected_server.py"), "http"]
    if name == "media":
        return sys.executable, [str(HERE / "media_server.py")]
    if name == "telltale":
        return sys.executable, [str(HERE / "telltale.py"), transport]
    if name == "evil":
        return sys.executable, [str(HERE / "evil_http.py")]
    if name not in PYTHON_PEERS:
        raise ValueError(f"no peer is called {name!r}")
    return str(peer_python(name)), [str(HERE / f"{PYTHON_PEERS[name]}_server.py"), transport]


def _words(command: tuple[str, list[str]]) -> list[str]:
    return [command[0], *command[1], "--seconds"]


def agent_client(face: str) -> list[str]:
    """The command of agent_client.py or agent_client.mjs as this face. Its other arguments follow."""
    if not face.startswith(("ts", "mcp-remote")):
        environment = face if face == "fastmcp" else face.partition("-")[0]
        return [str(peer_python(environment)), str(HERE / "agent_client.py"), face]
    node = shutil.which("node")
    if node is None or not npm_package("@modelcontextprotocol/client").exists():
        pytest.skip("node or its packages are missing: run tests/tools/setup_peers.py")
    return [node, str(HERE / "agent_client.mjs"), face]


def inspector() -> list[str]:
    """The command of MCP Inspector, installed when it is first asked for: only long tests and benchmarks use it."""
    npm, node, folder = shutil.which("npm"), shutil.which("node"), HERE / "inspector"
    if npm is None or node is None:
        pytest.skip("node is missing")
    if not (folder / "node_modules" / ".package-lock.json").exists():
        subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=folder, check=True, capture_output=True, timeout=600)
    return [node, str(folder / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")]


def _bridge_command(name: str, transport: str) -> tuple[str, list[str]]:
    """An HTTP bridge in front of the Python SDK's stdio peer. mcp-remote is the reverse: stdio in front of a URL that
    the caller appends. mcp-grafana is a server itself."""
    node = shutil.which("node")
    behind, arguments = peer_command("sdk1")
    if name in ("supergateway", "mcp-remote"):
        script = npm_package(name) / "dist" / ("index.js" if name == "supergateway" else "proxy.js")
        if node is None or not script.exists():
            pytest.skip(f"node or the peer {name} is missing: run tests/tools/setup_peers.py --all")
        if name == "mcp-remote":
            return node, [str(script)]
        stateful = ["--stateful"] if transport == "streamableHttp" else []
        return node, [
            str(script),
            "--stdio",
            shlex.join([behind, *arguments]),
            "--outputTransport",
            transport,
            *stateful,
        ]
    program = peer_python("bridges").parent / name
    if name == "mcp-proxy":
        return str(program), ["--", behind, *arguments]
    return str(program), ["-t", transport]


def _bridge_port(name: str, args: list[str], port: int) -> list[str]:
    """The arguments of a bridge, with the port that it listens on."""
    if name == "mcp-grafana":
        return [*args, "--address", f"127.0.0.1:{port}"]
    return [*args, "--port", str(port)] if name == "supergateway" else ["--port", str(port), *args]


def _node_command(name: str, transport: str) -> tuple[str, list[str]]:
    node = shutil.which("node")
    installed = npm_package("@modelcontextprotocol/sdk").exists()
    package = npm_package(f"@modelcontextprotocol/server-{name}")
    script = HERE / NODE_PEERS[name] if name in NODE_PEERS else package / "dist" / "index.js"
    if node is None or not installed or not script.exists():
        pytest.skip(f"node or the peer {name} is missing: run tests/tools/setup_peers.py --all")
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
        """Send SIGTERM, then SIGKILL after 5 s. Does nothing to a peer that has exited."""
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
        """The requests that the evil HTTP peer received: dicts of verb, path, method and headers."""
        with urllib.request.urlopen(f"{self.url}/seen", timeout=10) as response:
            return json.load(response)


def start_peer(name: str, transport: str = "http", *, port: int = 0, env: Mapping[str, str] | None = None) -> Peer:
    """Start a peer over HTTP and wait until it accepts connections. The caller stops it."""
    command, args = peer_command(name, transport)
    if (
        name in PYTHON_PEERS
        or name in NODE_PEERS
        or name in ("evil", "telltale", "protected")
        or name.endswith("-tasks")
    ):
        args = [*args, "--port", str(port)]
    if name in BRIDGES:
        port = port or free_port()
        args = _bridge_port(name, args, port)
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
        peer.url = _await_port(peer, port) if name in BRIDGES else _await_url(peer)
    except BaseException:  # whatever the cause, leave no process behind
        peer.stop()
        raise
    return peer


@contextmanager
def run_peer(
    name: str, transport: str = "http", *, port: int = 0, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The URL of a peer that runs while the block does. `evil` yields its base URL (append the scenario)."""
    if transport != "http":
        raise ValueError("stdio peers are started by their client: use peer_command()")
    peer = start_peer(name, port=port, env=env)
    try:
        yield peer.url
    finally:
        peer.stop()


def _await_port(peer: Peer, port: int) -> str:
    """Wait for a program that does not announce its port on stderr."""
    threading.Thread(target=_drain, args=(peer, queue.Queue()), daemon=True).start()
    deadline = time.monotonic() + READY_SECONDS
    while peer.process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return f"http://127.0.0.1:{port}/mcp"
        except OSError:
            time.sleep(0.05)  # another process listens, so poll
    raise RuntimeError(f"the peer did not become ready; its stderr:\n{''.join(peer.lines[-40:])}")


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
