"""Two secrets, one in the environment of a server and one in a header: neither is anywhere it does not belong.

The servers give back what they were given, as a careless or a hostile one would.
"""

import asyncio
import base64
import json
import re
import socket
import time
from urllib.parse import quote
from uuid import UUID

import pytest

from tests.e2e.sockets import Visitor, asked, greeted
from tests.peers.peers import peer_command, run_peer
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.up, pytest.mark.slow]
IN_ENVIRONMENT, IN_HEADER = "canary-env-7f3a91c2d4", "canary-head/5b+8e0d77"
READY_SECONDS = 40
LINKS = re.compile(r'href="(/[^"#]*)"')


def traces(data: bytes) -> list[str]:
    """How the secrets are still to be read in `data`."""
    found = []
    for secret in (IN_ENVIRONMENT, IN_HEADER):
        raw = secret.encode()
        forms = {
            "plain": raw,
            "url": quote(secret, safe="").encode(),
            "json": json.dumps(secret)[1:-1].encode(),
            "hex": raw.hex().encode(),
            "utf-16": secret.encode("utf-16-le"),
            **{f"base64+{shift}": base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3)},
        }
        found += [f"{secret}: {name}" for name, form in forms.items() if form in data]
    return found


def everything_in_redis(stack: Stack) -> bytes:
    """The dump of each key of each database, and the append-only file with all that was ever written."""
    path = stack.data_dir / "valkey" / "valkey.sock"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(str(path))
        answers = b""
        for database in range(3):
            answers += _say(connection, f"SELECT {database}")
            keys = re.findall(rb"\r\n\$\d+\r\n([^\r]+)", _say(connection, "KEYS *"))
            answers += b"".join(keys) + b"".join(_say(connection, f"DUMP {key.decode()}") for key in keys)
    files = [file.read_bytes() for file in path.parent.rglob("*") if file.is_file()]
    assert files
    return answers + b"".join(files)


def _say(connection: socket.socket, command: str) -> bytes:
    connection.sendall(f"{command}\r\n".encode())
    time.sleep(0.05)  # one short answer on a local socket
    return connection.recv(1 << 20)


def every_page(visitor: Visitor) -> dict[str, bytes]:
    """All pages that links lead to from the overview, by address."""
    found: dict[str, bytes] = {}
    waiting = ["/", "/palette/?q=e", "/servers/environment/info/", "/servers/headers/info/"]
    while waiting:
        path = waiting.pop()
        if path in found or path.startswith(("/static/", "/accounts/logout")):
            continue
        page = visitor.get(path.replace("&amp;", "&"))
        found[path] = page.content + repr(page.headers).encode()
        waiting += LINKS.findall(page.text)
        assert len(found) < 500
    return found


async def called(stack: Stack, visitor: Visitor, orders: list[tuple[str, str, dict]]) -> tuple[bytes, list[str]]:
    """All that a socket hears while these tools are called, and the uids of the calls."""
    heard, uids = [], []
    async with greeted(stack, visitor) as live:
        await live.send(json.dumps({"op": "sub", "topics": {"audit": 0, "servers": None}}))
        for ref, (server, tool, arguments) in enumerate(orders):
            await live.send(json.dumps({"op": "sub", "topics": {f"server.{server}": None, f"log.{server}": 0}}))
            accepted = await asked(live, server, tool, arguments, ref)
            assert accepted["op"] == "accepted", accepted
            uids.append(accepted["call"])
            await live.send(json.dumps({"op": "sub", "topics": {f"call.{uids[-1]}": None}}))
            heard += [json.dumps(accepted), await _until_final(live, uids[-1], heard)]
    return "\n".join(heard).encode(), uids


async def _until_final(live: object, uid: str, heard: list[str]) -> str:
    async with asyncio.timeout(30):
        async for text in live:
            heard.append(text)
            frame = json.loads(text)
            if frame.get("t") == f"call.{uid}" and any(row.get("final") for row in frame.get("rows") or []):
                return text
    raise AssertionError("the socket closed")


def ready_servers(stack: Stack, count: int) -> dict[str, str]:
    """Uid by name, once all have a session and tools."""
    query = (
        "SELECT v.name FROM servers_server v JOIN mcp_sessions_mcpsession s ON s.server_id = v.id WHERE "
        "s.state = 'ready' AND EXISTS (SELECT 1 FROM servers_definition d WHERE d.server_id = v.id)"
    )
    deadline = time.monotonic() + READY_SECONDS
    while len(stack.rows(query)) < count:
        assert time.monotonic() < deadline, stack.output[-3000:]
        time.sleep(0.2)  # rows of another process can only be asked for
    rows = stack.rows("SELECT name, uid FROM servers_server ORDER BY id")
    return {row["name"]: str(UUID(row["uid"])) for row in rows}


def texts_of_the_database(stack: Stack) -> bytes:
    """The files as they are, journal included."""
    files = list(stack.data_dir.glob("mcpadmin.sqlite3*"))
    assert files
    return b"".join(file.read_bytes() for file in files)


def register_all(stack: Stack, url: str) -> None:
    as_ada = ("register_server", "--user", ADMIN[0], "--name")
    given = {"GIVEN_ENV": IN_ENVIRONMENT, "GIVEN_HEADER": f"Bearer {IN_HEADER}"}
    command, arguments = peer_command("telltale")
    program = ("--", command, *arguments)
    stack.manage(*as_ada, "Environment", "--secret-env", "API_TOKEN=GIVEN_ENV", *program, env=given)
    stack.manage(*as_ada, "Headers", "--secret-header", "Authorization=GIVEN_HEADER", "--url", url, env=given)
    stack.manage(*as_ada, "Neighbour", *program)


def test_no_secret_is_found_outside_of_the_vault_and_the_one_server_it_is_for(make_stack) -> None:
    stack = make_stack().start()
    stack.create_admin()
    with run_peer("telltale") as url:
        register_all(stack, url)
        servers = ready_servers(stack, 3)
        visitor = Visitor(stack)
        orders = [(servers[name], tool, {}) for name in servers for tool in ("tell", "err", "fail")]
        heard, calls = asyncio.run(called(stack, visitor, orders))
        pages = every_page(visitor)
        pages |= {f"result of {uid}": visitor.get(f"/calls/{uid}/result.json").content for uid in calls}
    told = json.loads(visitor.get(f"/calls/{calls[0]}/result.json").text)["structuredContent"]
    assert "API_TOKEN" in told  # the server did have it, and said so
    assert len(pages) > 30
    assert {path: traces(content) for path, content in pages.items() if traces(content)} == {}
    assert traces(heard) == []
    assert traces(stack.output.encode()) == []
    assert traces(everything_in_redis(stack)) == []
    assert traces(texts_of_the_database(stack)) == []
    assert "chain holds" in stack.manage("verify_audit")


def test_a_child_is_given_what_was_declared_for_it_and_nothing_of_its_neighbours(make_stack) -> None:
    stack = make_stack(env={"OPERATORS_OWN_TOKEN": IN_HEADER}).start()
    stack.create_admin()
    command, arguments = peer_command("telltale")
    as_ada = ("register_server", "--user", ADMIN[0], "--name")
    given = {"GIVEN_ENV": IN_ENVIRONMENT}
    stack.manage(*as_ada, "First", "--secret-env", "API_TOKEN=GIVEN_ENV", "--", command, *arguments, env=given)
    stack.manage(*as_ada, "Second", "--env", "PLAIN=plain-value", "--", command, *arguments)
    servers = ready_servers(stack, 2)
    visitor = Visitor(stack)
    _, calls = asyncio.run(called(stack, visitor, [(servers["Second"], "tell", {})]))
    told = json.loads(visitor.get(f"/calls/{calls[0]}/result.json").text)["structuredContent"]
    names = {name for name, value in told.items() if value != "is a key"}
    assert names - {"PATH", "HOME", "LANG", "TZ", "PWD", "LC_CTYPE"} == {"PLAIN"}
    assert traces(json.dumps(told).encode()) == []
