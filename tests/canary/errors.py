"""Failures inside the product: refused forms, refused requests, a missing table, a dead worker."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.canary.world import SECRETS, World, a_certificate

VALUE = SECRETS["refused"]


def refused_forms(world: World) -> list[bytes]:
    """Each page's response to a secret that it refuses."""
    other_key = a_certificate()[1]
    world.secrets["other key"] = other_key.splitlines()[5]
    own = {"url": world.careless.url}
    row = "values-0-"
    rows = {
        "values-TOTAL_FORMS": "1",
        "values-INITIAL_FORMS": "0",
        "roots-TOTAL_FORMS": "0",
        "roots-INITIAL_FORMS": "0",
    }
    account = {"name": "", "client": "robot", "issuer": "https://login.example.com"}
    server = {row + "kind": "header", row + "name": "X-Api-Key", row + "value": VALUE, row + "secret": "on", "name": ""}
    orders = [
        ("/credentials/add/?kind=bearer", own | {"name": "", "token": VALUE}),
        ("/credentials/add/?kind=bearer", own | {"name": "Two words", "token": f"Bearer {VALUE}"}),
        ("/credentials/add/?kind=header", own | {"name": "H", "header": "not a name", "value": VALUE}),
        ("/credentials/add/?kind=basic", own | {"name": "B", "user": "a:b", "password": VALUE}),
        ("/credentials/add/?kind=environment", {"name": "E", "variable": "9 x", "value": VALUE}),
        ("/credentials/add/?kind=certificate", own | {"name": "C", "certificate": a_certificate()[0], "key": other_key}),
        ("/credentials/add/?kind=service_account", own | account | {"secret": VALUE, "key": ""}),
        ("/credentials/add/?kind=service_account", own | account | {"secret": "", "key": other_key, "issuer": "none"}),
        ("/credentials/add/?kind=workload", own | account | {"name": "W", "token": VALUE}),
        ("/credentials/add/?kind=enterprise", own | account | {"name": "N", "token": VALUE, "provider": "none"}),
        ("/credentials/add/?kind=enterprise", own | account | {"provider_secret": VALUE, "secret": other_key}),
        ("/servers/add/", rows | server | {"url": "https://mcp.example.com/mcp"}),
        ("/servers/import/", {"text": '{"mcpServers": {"x": {"env": {"API_TOKEN": "' + VALUE + '"}'}),
    ]  # fmt: skip
    return [world.post(path, 422, **data).content for path, data in orders]


def refused_requests(world: World) -> list[bytes]:
    """A post without a CSRF token, and one to an address that does not exist."""
    visitor = world.visitor
    data = {"name": "X", "token": VALUE, "url": world.careless.url}
    forged = visitor.request("POST", "/credentials/add/", data=data)
    nowhere = world.post("/credentials/nowhere/", 404, token=VALUE)
    assert forged.status_code == 403
    return [forged.content, nowhere.content]


@contextmanager
def table_away(world: World, table: str) -> Iterator[None]:
    world.stack.write(f"ALTER TABLE {table} RENAME TO {table}_away")
    try:
        yield
    finally:
        world.stack.write(f"ALTER TABLE {table}_away RENAME TO {table}")


def broken_page(world: World) -> bytes:
    """A traceback in the web process, whose stack frames hold the posted values."""
    with table_away(world, "servers_credential"):
        order = {"name": "Broken", "url": world.careless.url, "token": VALUE}
        answer = world.post("/credentials/add/?kind=bearer", 500, **order)
    assert re.search(r"(Operational|Programming)Error", world.stack.output)
    return bytes(answer.content)


def crashed_worker(world: World) -> None:
    """Crash a worker with SIGABRT, and wait for another one."""
    (pid, *_) = world.stack.worker_pids()
    os.kill(pid, signal.SIGABRT)
    world.until(lambda: set(world.stack.worker_pids()) - {pid}, "no other worker came")
