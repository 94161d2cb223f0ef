"""Well-known stdio servers start and do their work in the default profile, each with what its registration grants.

They come from the package registries by npx and uvx, so the test needs these and skips where they do not answer. Where a
registry is a mirror on a private network, as an operator's may be, its hosts are named as an operator would.
"""

import asyncio
import functools
import http.server
import shlex
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from asgiref.sync import sync_to_async

from sessions.host.launch import load
from sessions.mcp.transports.registry import StdioSpec
from sessions.mcp.transports.stdio import Runtime, Tier, isolation, tiers
from tests.sessions.host.make import make_session
from tests.sessions.mcp.transports.making import connected
from tests.tools import browser, podman

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="only Linux can confine")]
UVX = shutil.which("uvx") or str(Path(sys.executable).with_name("uvx"))
CHROMIUM = browser.executable() or ""
FASTMCP = """
from fastmcp import FastMCP
mcp = FastMCP("own")
@mcp.tool
def double(number: int) -> int:
    return 2 * number
mcp.run()
"""


@dataclass(frozen=True)
class Usual:
    """`{folder}` and `{port}` stand for the test's own. `granted`: fields of the registration beyond the defaults."""

    words: str
    tool: str
    arguments: dict[str, Any]
    answer: str
    granted: dict[str, list[str]] = field(default_factory=dict)


USUAL = {
    "everything": Usual("npx -y @modelcontextprotocol/server-everything", "echo", {"message": "hello"}, "hello"),
    "filesystem": Usual(
        "npx -y @modelcontextprotocol/server-filesystem {folder}",
        "read_text_file",
        {"path": "{folder}/notes.txt"},
        "written by a person",
        {"writable_paths": ["{folder}"]},
    ),
    "memory": Usual(
        "npx -y @modelcontextprotocol/server-memory",
        "create_entities",
        {"entities": [{"name": "Ada", "entityType": "person", "observations": ["likes tea"]}]},
        "likes tea",
    ),
    "sequential-thinking": Usual(
        "npx -y @modelcontextprotocol/server-sequential-thinking",
        "sequentialthinking",
        {"thought": "first", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        "thoughtHistoryLength",
    ),
    "git": Usual(
        "uvx mcp-server-git --repository {folder}/repository",
        "git_log",
        {"repo_path": "{folder}/repository"},
        "first commit",
        {"writable_paths": ["{folder}/repository"]},
    ),
    "time": Usual("uvx mcp-server-time", "get_current_time", {"timezone": "Europe/Berlin"}, "Europe/Berlin"),
    "fetch": Usual(
        "uvx mcp-server-fetch --ignore-robots-txt --allow-private-ips",
        "fetch",
        {"url": "http://127.0.0.1:{port}/notes.txt"},
        "written by a person",
        {"network_hosts": ["127.0.0.1:{port}"]},
    ),
    "sqlite": Usual(
        "uvx --with mcp<2 mcp-server-sqlite --db-path {folder}/base/some.db",
        "write_query",
        {"query": "INSERT INTO people VALUES ('Ada')"},
        "affected_rows",
        {"writable_paths": ["{folder}/base"]},
    ),
    "fastmcp": Usual(
        "uvx --from fastmcp python {folder}/server.py",
        "double",
        {"number": 21},
        "42",
    ),
    "browser": Usual(
        f"npx -y @playwright/mcp --executable-path {CHROMIUM} --headless --no-sandbox --isolated",
        "browser_navigate",
        {"url": "http://127.0.0.1:{port}/page.html"},
        "A page",
        {"network_hosts": ["127.0.0.1:{port}"]},
    ),
}


@pytest.fixture
def registries(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an operator sets on this machine. Skips without npx, uvx or an answer of the registries."""
    index = pytest.importorskip("pip._internal.models.index").PyPI
    if shutil.which("npx") is None or not Path(UVX).exists():
        pytest.skip("npx or uvx is not installed")
    found = subprocess.run(["npm", "config", "get", "registry"], capture_output=True, text=True, check=False)
    hosts = [urlsplit(found.stdout.strip()).hostname or "", index.netloc, index.file_storage_domain]
    for host in hosts:
        try:
            socket.create_connection((host, 443), 10).close()
        except OSError:
            pytest.skip(f"{host} does not answer")
    settings.STDIO_HOSTS = [f"{host}:443" for host in hosts]
    settings.INHERITED_VARIABLES = ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"]


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("written by a person\n")
    (tmp_path / "page.html").write_text("<title>A page</title><h1>Hello</h1>")
    (tmp_path / "server.py").write_text(FASTMCP)
    (tmp_path / "base").mkdir()
    with sqlite3.connect(tmp_path / "base" / "some.db") as database:
        database.execute("CREATE TABLE people (name TEXT)")
        database.execute("INSERT INTO people VALUES ('Grace')")
    repository = tmp_path / "repository"
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first commit"]):
        given = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
        subprocess.run(
            ["git", *given, *words, *([str(repository)] if words[0] == "init" else [])],
            cwd=tmp_path if words[0] == "init" else repository,
            check=True,
        )
    return tmp_path


@pytest.fixture
def port(scene: Path) -> Iterator[int]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(scene))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(params=["", "container"])
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The best tier of this machine, or containers."""

    async def found() -> None:
        await isolation()
        runtime = Runtime(tuple(shlex.split(podman.command_line())))
        monkeypatch.setattr(tiers, "_found", await tiers._probed(runtime))

    if request.param:
        podman.command_line()
        asyncio.run(found())
        assert tiers._found is not None
        assert tiers._found.tier is Tier.CONTAINER, tiers._found.reason
    return str(request.param)


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.django_db(transaction=True)
def test_a_usual_server_does_its_work_in_the_default_profile(
    name: str,
    tier: str,
    registries: None,
    scene: Path,
    port: int,
    settings: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if name == "browser" and not CHROMIUM:
        pytest.skip("Chromium is not installed")
    settings.DATA_DIR = tmp_path_factory.mktemp("data")
    usual = USUAL[name]

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("{folder}", str(scene)).replace("{port}", str(port))
        if isinstance(value, list):
            return [filled(item) for item in value]
        return {key: filled(item) for key, item in value.items()} if isinstance(value, dict) else value

    command, *arguments = filled(usual.words).split(" ")
    granted = {"writable_paths": [], **filled(usual.granted)}
    session = make_session(command=UVX if command == "uvx" else command, arguments=arguments, **granted)

    async def answer() -> str:
        spec = (await sync_to_async(load)(session.pk)).spec
        assert isinstance(spec, StdioSpec)
        assert spec.confinement is not None
        async with connected(spec, era="legacy") as made:
            result = await made.client.call_tool(usual.tool, filled(usual.arguments))
            return str(result)

    assert usual.answer in asyncio.run(answer())
