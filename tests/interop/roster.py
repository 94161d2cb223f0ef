"""The servers of the matrix: their names, how they start, and the paths of their HTTP faces."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psycopg

from tests.interop import plans
from tests.interop.plans import Plan
from tests.interop.verbs import Verb
from tests.peers.peers import BRIDGES, HERE, PYTHON_PEERS, npm_package
from tests.tools.postgres import own_database

STDIO = "stdio"
HTTP = "HTTP"
STATELESS = "HTTP, stateless"
SSE = "HTTP+SSE"
WEBSOCKET = "WebSocket"

#: the values of `Connected.transport`
KINDS = {
    STDIO: "stdio",
    HTTP: "streamable_http",
    STATELESS: "streamable_http",
    SSE: "http_sse",
    WEBSOCKET: "websocket",
}


@dataclass(frozen=True)
class Process:
    """One process that serves HTTP, started as `peer_command(name, transport)`, and the paths where it may respond."""

    transport: str
    paths: Mapping[str, str]


@dataclass(frozen=True)
class Entry:
    """`dummy`: has an invalid key, so it must stay offline. `probe_kills`: faces that need the setting era=legacy,
    because the unknown method `server/discover` ends the server. `cancel_kills`: a cancelled call ends the server's
    session, over Streamable HTTP the whole server (Python SDK 1.9 and older)."""

    name: str
    title: str
    plan: Plan
    processes: tuple[Process, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    dummy: bool = False
    probe_kills: frozenset[str] = frozenset()
    cancel_kills: bool = False
    #: an HTTP peer whose URL is the first argument of the stdio command
    upstream: str = ""
    over_stdio: bool = True
    #: False for a bridge: it proves its transports; the SDK behind it has its own rows for the revisions
    every_revision: bool = True
    #: what the server declares but does not do, by face
    not_served: Mapping[str, frozenset[Verb]] = field(default_factory=dict)


ALL_FACES = Process("all", {HTTP: "/mcp", STATELESS: "/stateless/mcp", SSE: "/sse", WEBSOCKET: "/ws"})
_NOT_BY_MCP_PROXY = frozenset({Verb.CANCEL, Verb.SAMPLE, Verb.ELICIT, Verb.LOG})
#: the TypeScript SDK 2.x keeps no sessions over HTTP
STATELESS_ONLY = Process("all", {STATELESS: "/mcp", SSE: "/sse", WEBSOCKET: "/ws"})


def _on_sdk(name: str, title: str, *processes: Process) -> Entry:
    return Entry(name, title, plans.TOOLBOX, processes or (ALL_FACES,))


def _of_npm(name: str, plan: Plan, *arguments: str, dummy: bool = False, **environment: str) -> Entry:
    return Entry(name, f"server-{name}", plan, environment=environment, arguments=arguments, dummy=dummy)


@contextmanager
def one_table(cluster_url: str) -> Iterator[str]:
    """A database for server-postgres, whose resources are the tables."""
    with own_database(cluster_url) as url:
        with psycopg.connect(url) as database:
            database.execute("CREATE TABLE visits (number integer PRIMARY KEY, note text)")
        yield url


def roster(directory: str, postgres_url: str | None) -> list[Entry]:
    """All servers, in the order of the page. They may write to `directory`."""
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
    servers += [
        Entry(
            "supergateway",
            "supergateway",
            plans.BRIDGED,
            (
                Process("streamableHttp", {HTTP: "/mcp"}),
                Process("sse", {SSE: "/sse"}),
                Process("ws", {WEBSOCKET: "/message"}),
            ),
            over_stdio=False,
            every_revision=False,
            not_served={WEBSOCKET: frozenset({Verb.CANCEL, Verb.SAMPLE, Verb.ELICIT})},
        ),
        Entry(
            "mcp-proxy",
            "mcp-proxy",
            plans.BRIDGED,
            (Process("all", {HTTP: "/mcp", SSE: "/sse"}),),
            over_stdio=False,
            every_revision=False,
            not_served={HTTP: _NOT_BY_MCP_PROXY | {Verb.PROGRESS}, SSE: _NOT_BY_MCP_PROXY},
        ),
        Entry(
            "mcp-remote",
            "mcp-remote",
            plans.BRIDGED,
            arguments=("--transport", "http-only", "--allow-http"),
            upstream="sdk1",
            every_revision=False,
        ),
        Entry(
            "mcp-grafana",
            "mcp-grafana (Go)",
            plans.GRAFANA,
            (Process("streamable-http", {HTTP: "/mcp"}), Process("sse", {SSE: "/sse"})),
            environment={"GRAFANA_URL": "http://127.0.0.1:9", "GRAFANA_SERVICE_ACCOUNT_TOKEN": "dummy"},
            not_served=dict.fromkeys((STDIO, HTTP, SSE), frozenset({Verb.LOG})),
        ),
        Entry("slow-start", "slow start", plans.BRIDGED, arguments=("3",), every_revision=False),
    ]
    if postgres_url is not None:
        servers.append(_of_npm("postgres", plans.POSTGRES, postgres_url))
    return servers


def version(entry: Entry, told: Mapping[str, object]) -> str:
    """SDK peers report the version of their SDK. An npm server has the version of its package."""
    if entry.name in (*PYTHON_PEERS, "slow-start") or entry.name.startswith("ts"):
        return str(told.get("version", ""))
    if (manifest := npm_package(entry.name) / "package.json").exists():
        return str(json.loads(manifest.read_text())["version"])
    if entry.name in BRIDGES:
        pins = dict(line.split("==") for line in (HERE / "bridges.in").read_text().split())
        return pins[entry.name]
    manifest = npm_package(f"@modelcontextprotocol/server-{entry.name}") / "package.json"
    return str(json.loads(manifest.read_text())["version"])
