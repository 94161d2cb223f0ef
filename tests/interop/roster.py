"""The servers of the matrix: what each is called, how it starts, where its HTTP faces would be."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.interop import plans
from tests.interop.plans import Plan
from tests.peers.peers import PACKAGES, PYTHON_PEERS

STDIO = "stdio"
HTTP = "HTTP"
STATELESS = "HTTP, stateless"
SSE = "HTTP+SSE"
WEBSOCKET = "WebSocket"

#: the words of `Connected.transport`
KINDS = {
    STDIO: "stdio",
    HTTP: "streamable_http",
    STATELESS: "streamable_http",
    SSE: "http_sse",
    WEBSOCKET: "websocket",
}


@dataclass(frozen=True)
class Process:
    """One process that serves HTTP: started as `peer_command(name, transport)`; the paths that it may answer at."""

    transport: str
    paths: Mapping[str, str]


@dataclass(frozen=True)
class Entry:
    """`dummy`: has a key that opens nothing, so that it must stay offline. `probe_kills`: faces that need the
    setting era=legacy, because the unknown method `server/discover` ends the server. `cancel_kills`: a cancelled call
    ends the server's session, over Streamable HTTP the whole server (Python SDK 1.9 and older)."""

    name: str
    title: str
    plan: Plan
    processes: tuple[Process, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    dummy: bool = False
    probe_kills: frozenset[str] = frozenset()
    cancel_kills: bool = False


ALL_FACES = Process("all", {HTTP: "/mcp", STATELESS: "/stateless/mcp", SSE: "/sse", WEBSOCKET: "/ws"})
#: SDK 2.x of TypeScript keeps no sessions of its own over HTTP
STATELESS_ONLY = Process("all", {STATELESS: "/mcp", SSE: "/sse", WEBSOCKET: "/ws"})


def _on_sdk(name: str, title: str, *processes: Process) -> Entry:
    return Entry(name, title, plans.TOOLBOX, processes or (ALL_FACES,))


def _of_npm(name: str, plan: Plan, *arguments: str, dummy: bool = False, **environment: str) -> Entry:
    return Entry(name, f"server-{name}", plan, environment=environment, arguments=arguments, dummy=dummy)


def roster(directory: str, postgres_url: str | None) -> list[Entry]:
    """All servers, in the order of the page. `directory`: theirs to write to."""
    servers = [
        replace(_on_sdk("sdk1_2", "Python SDK"), cancel_kills=True),
        replace(_on_sdk("sdk1_8", "Python SDK"), cancel_kills=True, probe_kills=frozenset({STATELESS})),
        replace(_on_sdk("sdk1_9", "Python SDK"), cancel_kills=True),
        _on_sdk("sdk1_12", "Python SDK"),
        _on_sdk("sdk1", "Python SDK"),
        _on_sdk("sdk2", "Python SDK"),
        _on_sdk("fastmcp", "FastMCP"),
        _on_sdk("ts", "TypeScript SDK"),
        _on_sdk("ts2", "TypeScript SDK", STATELESS_ONLY),
        Entry(
            "everything",
            "server-everything",
            plans.EVERYTHING,
            (Process("http", {HTTP: "/mcp", STATELESS: "/stateless/mcp"}), Process("sse", {SSE: "/sse"})),
        ),
        _of_npm("filesystem", plans.FILESYSTEM, directory),
        _of_npm("memory", plans.MEMORY, MEMORY_FILE_PATH=f"{directory}/memory.jsonl"),
        _of_npm("github", plans.GITHUB, dummy=True, GITHUB_PERSONAL_ACCESS_TOKEN="dummy"),
        _of_npm("brave-search", plans.BRAVE, dummy=True, BRAVE_API_KEY="dummy"),
        _of_npm("google-maps", plans.MAPS, dummy=True, GOOGLE_MAPS_API_KEY="dummy"),
        _of_npm("slack", plans.SLACK, dummy=True, SLACK_BOT_TOKEN="dummy", SLACK_TEAM_ID="T0"),
    ]
    if postgres_url is not None:
        servers.append(_of_npm("postgres", plans.POSTGRES, postgres_url))
    return servers


def version(entry: Entry, told: Mapping[str, object]) -> str:
    """Peers on an SDK tell the version of the SDK; a server of npm has that of its package."""
    if entry.name in PYTHON_PEERS or entry.name.startswith("ts"):
        return str(told.get("version", ""))
    manifest = json.loads((PACKAGES / f"server-{entry.name}" / "package.json").read_text())
    return str(manifest["version"])
