"""Keys are rotated while calls run: the rotation is killed halfway and resumed, and no call fails."""

import asyncio
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.signing_in import signed_in
from tests.e2e.sockets import Visitor, a_call, greeted
from tests.peers.peers import free_port, peer_command, start_peer
from tests.servers.credentials.half_way import killed_after
from tests.tools.stack import ADMIN, Stack

#: `make test` has a killed rotation while values are read and written: tests/servers/credentials/test_rotation.py
pytestmark = [pytest.mark.up, pytest.mark.slow, pytest.mark.long]
ROWS, BETWEEN, SECONDS = 150, 2, 90
#: Values of an unused server, one batch and a half, so that a kill interrupts the rotation halfway. And servers whose
#: sessions keep closing and reopening, which opens the vault each time.
PREPARE = f"""
from django.core.management import call_command
from servers import crypto
from servers.models import Server, ServerValue
for words in {{}}: call_command("register_server", "--user={ADMIN[0]}", *words)
server = Server.objects.create(slug="filler", name="Filler", transport="stdio", command="true", enabled=False)
rows = []
for number in range({ROWS}):
    row = ServerValue(server=server, kind="environment", name=f"V{{{{number}}}}", secret=True)
    row.sealed, row.key_id = crypto.seal(f"value-{{{{number}}}}", table="servers_servervalue", uid=row.uid, field="sealed")
    rows.append(row)
ServerValue.objects.bulk_create(rows)
Server.objects.filter(slug__in=["local", "header"]).update(connection_policy="idle_timeout", idle_timeout_seconds=1)
"""
#: the key ids found in each column of sealed values
KEYS = """
import json
from servers.crypto import sealed_fields
found = {f"{place.model}.{place.field}": list(place.rows().values_list(place.key_field, flat=True).distinct())
         for place in sealed_fields()}
print(json.dumps({name: keys for name, keys in found.items() if keys}))
"""
ORDERS: dict[str, tuple[str, dict[str, str]]] = {
    "grant": ("greet", {"name": "Ada"}),
    "account": ("greet", {"name": "Bea"}),
    "local": ("tell", {}),
    "header": ("tell", {}),
}


class Servers:
    """Two servers behind OAuth, whose tokens expire every third call, and two that get a value from the vault."""

    def __init__(self, stack: Stack, grant: str, account: str) -> None:
        self.stack, self.urls = stack, {"grant": grant, "account": account}
        self.ended: dict[str, list[str]] = {slug: [] for slug in ORDERS}

    def expire(self, slug: str) -> None:
        url = self.urls[slug].replace("/mcp", "/control/expire")
        httpx.post(url, trust_env=False, timeout=20).raise_for_status()

    async def call(self, visitor: Visitor, slug: str) -> None:
        """Make one call after the other until cancelled."""
        (row,) = await asyncio.to_thread(self.stack.rows, "SELECT uid FROM servers_server WHERE slug = ?", slug)
        async with greeted(self.stack, visitor) as live:
            while True:
                if slug in self.urls and len(self.ended[slug]) % 3 == 2:
                    await asyncio.to_thread(self.expire, slug)
                final = await a_call(live, row["uid"], *ORDERS[slug], ref=len(self.ended[slug]) + 1)
                self.ended[slug].append(final["state"])
                await asyncio.sleep(0.5 if slug in self.urls else 1.5)  # longer than the idle time-out of the session

    async def more(self) -> None:
        """Wait until each server has had BETWEEN more calls."""
        before = {slug: len(states) for slug, states in self.ended.items()}
        async with asyncio.timeout(SECONDS):
            while any(len(self.ended[slug]) < before[slug] + BETWEEN for slug in ORDERS):  # noqa: ASYNC110  counts
                await asyncio.sleep(0.1)

    @asynccontextmanager
    async def under_calls(self) -> Any:
        visitor = await asyncio.to_thread(Visitor, self.stack)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.call(visitor, slug)) for slug in ORDERS]
            yield
            for task in tasks:
                task.cancel()
        visitor.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.long])])
def product(request: pytest.FixtureRequest, make_stack: Callable[..., Stack]) -> Stack:
    url = request.getfixturevalue("postgres_database") if request.param == "postgresql" else ""
    stack: Stack = make_stack(env={"DATABASE_URL": url} if url else {}, administrator=not url).start()
    if url:
        stack.create_admin()
    return stack


@pytest.fixture
def servers(product: Stack, tmp_path: Path) -> Iterator[Servers]:
    log = {"PROTECTED_LOG": str(tmp_path / "log")}
    peers = [
        start_peer("protected", port=free_port(), env=log),
        start_peer("protected", port=free_port(), env=log | {"PROTECTED_ACCOUNT": "robot:the-secret-of-the-robot"}),
        start_peer("telltale"),
    ]
    try:
        yield registered(product, *(peer.url for peer in peers))
    finally:
        for peer in peers:
            peer.kill()


def registered(stack: Stack, grant: str, account: str, header: str) -> Servers:
    command, words = peer_command("telltale")
    orders = [
        ("--name=Grant", f"--url={grant}"),
        ("--name=Account", f"--url={account}", "--disabled"),
        ("--name=Header", f"--url={header}", "--secret-header=X-Api-Key=GIVEN"),
        ("--name=Local", "--secret-env=API_TOKEN=GIVEN", "--", command, *words),
    ]
    stack.manage("shell", "--no-imports", "-c", PREPARE.format(orders), env={"GIVEN": "a-value-of-the-vault"})
    visitor = Visitor(stack)
    robot = {"name": "Robot", "client": "robot", "issuer": account.removesuffix("/mcp"), "url": account}
    made = visitor.post("/credentials/add/?kind=service_account", robot | {"secret": "the-secret-of-the-robot"})
    assert made.status_code == 302, made.text[:3000]
    visitor.post("/credentials/for/account/", {"credential": made.headers["location"].split("/")[-2]})
    visitor.post("/servers/account/enable/")
    signed_in(stack, visitor, grant, "grant", "the-secret-of-the-client")
    all_listed(stack)
    visitor.close()
    return Servers(stack, grant, account)


def all_listed(stack: Stack) -> None:
    listed = "SELECT COUNT(DISTINCT server_id) AS n FROM servers_definition"
    deadline = time.monotonic() + SECONDS
    while stack.rows(listed)[0]["n"] < len(ORDERS):
        assert time.monotonic() < deadline, stack.output[-3000:]
        time.sleep(0.2)  # no event reports rows of another process


def ring(stack: Stack) -> set[str]:
    return set(json.loads((stack.data_dir / "keyring.json").read_text())["keys"])


def keys_in_use(stack: Stack) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(stack.shell(KEYS).splitlines()[-1])
    return found


def killed_half_way(stack: Stack) -> None:
    assert stack.attempt(*killed_after(ROWS // 2)).status == -signal.SIGKILL


async def rotated_under_calls(stack: Stack, servers: Servers) -> None:
    async with servers.under_calls():
        await servers.more()
        await asyncio.to_thread(killed_half_way, stack)
        left = json.loads(await asyncio.to_thread(stack.manage, "rotate_keys", "--check"))["left"]
        assert sum(left.values()) > 0, "the kill came too late to find it half done"
        await servers.more()
        said = await asyncio.to_thread(stack.manage, "rotate_keys")
        assert "New key" not in said, "what was begun is finished first"
        await servers.more()
        await asyncio.to_thread(stack.manage, "rotate_keys", "--retire")
        await servers.more()


async def called_again(servers: Servers) -> None:
    async with servers.under_calls():
        await servers.more()


def test_no_call_fails_while_a_rotation_is_killed_and_resumed_and_the_old_key_goes(
    product: Stack, servers: Servers, make_stack: Callable[..., Stack]
) -> None:
    old = ring(product)
    asyncio.run(rotated_under_calls(product, servers))
    new = ring(product)
    assert len(new) == 1
    assert not new & old
    assert set(keys_in_use(product)) >= {"servers.ServerValue.sealed", "servers.Credential.sealed"}
    assert {key for keys in keys_in_use(product).values() for key in keys} == new
    counts = {slug: len(states) for slug, states in servers.ended.items()}
    assert {state for states in servers.ended.values() for state in states} == {"succeeded"}, servers.ended

    product.stop()
    servers.stack = make_stack(
        env={"DATABASE_URL": product.database_url} if product.database_url else {}, data_dir=product.data_dir
    ).start()
    asyncio.run(called_again(servers))
    print(json.dumps({slug: [counts[slug], len(states)] for slug, states in servers.ended.items()}))
    assert {state for states in servers.ended.values() for state in states} == {"succeeded"}, servers.ended
    assert {key for keys in keys_in_use(product).values() for key in keys} == new
