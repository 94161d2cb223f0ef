"""With secrets of every kind, servers that leak them and failures all around, no secret appears where it must not.

The search is tested first: one value is leaked into each of twelve sinks, and the search finds exactly these.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.canary import errors, federated, sinks
from tests.canary.encodings import Searcher
from tests.canary.plants import planted
from tests.canary.world import (
    World,
    fill_the_vault,
    hold_an_import,
    know_the_tokens_of_accounts,
    send_a_webhook,
    settings,
    sign_in,
    world,
)
from tests.e2e.sockets import asked, ended, greeted
from tests.tools import valkey
from tests.tools.stack import Stack

pytestmark = [pytest.mark.up, pytest.mark.slow, pytest.mark.deadline(900)]
BY_THEMSELVES = ("by-secret", "by-key", *federated.SLUGS)
CALLED = ("environment", "neighbour", "protected", *BY_THEMSELVES)
TRIED = """SELECT COUNT(*) AS n FROM mcp_sessions_mcpsession WHERE state = 'ready' OR fault != ''"""


def neighbours(stack: Stack) -> bytes:
    """The environments of local servers that were given no secret."""
    found = [sinks.environments([process]) for process in stack.part("telltale.py")]
    assert any(b"API_TOKEN" in environment for environment in found)
    others = [environment for environment in found if b"API_TOKEN" not in environment]
    assert any(others)
    return b"\n".join(others)


async def told(made: World) -> list[str]:
    """Uids of calls whose results contain what the server was given."""
    tools = {"environment": ("tell", "err", "fail"), "neighbour": ("tell",), "protected": ("echo_token",)}
    tools |= dict.fromkeys(BY_THEMSELVES, ("echo_token",))
    orders = [(slug, tool) for slug in CALLED for tool in tools[slug]]
    uids = []
    async with greeted(made.stack, made.visitor) as live:
        for ref, (slug, tool) in enumerate(orders):
            accepted = await asked(live, made.uid(slug), tool, {}, ref)
            assert accepted["op"] == "accepted", accepted
            uids.append(accepted["call"])
            await ended(live, uids[-1])
    return uids


def tools_known(made: World, *slugs: str) -> None:
    known = "SELECT 1 FROM servers_definition d JOIN servers_server v ON v.id = d.server_id WHERE v.slug = ?"
    made.until(lambda: all(made.stack.rows(known, slug) for slug in slugs), f"no tools of {slugs}")


def everything_goes_wrong(made: World, listener: sinks.Listener, most_alike: int) -> dict[str, bytes]:
    """Trigger every failure and return the responses, by sink."""
    fill_the_vault(made)
    count = made.stack.rows("SELECT COUNT(*) AS n FROM mcp_sessions_mcpsession")[0]["n"]
    preview, subscription = hold_an_import(made), send_a_webhook(made)
    sign_in(made)
    listener.follow("servers", "audit", *(f"{kind}.{made.uid(slug)}" for slug in CALLED for kind in ("server", "log")))
    made.until(lambda: made.stack.rows(TRIED)[0]["n"] >= count - 1, "some server was never tried")
    names = [row["slug"] for row in made.stack.rows("SELECT slug FROM servers_server")]
    tools_known(made, *CALLED)
    uids = asyncio.run(told(made))
    know_the_tokens_of_accounts(made)
    refused = [*errors.refused_forms(made), *errors.refused_requests(made), errors.broken_page(made)]
    errors.crashed_worker(made)
    more = [preview, subscription, *(f"/servers/{name}/{tab}/" for name in names for tab in ("info", "settings"))]
    pages = sinks.every_page(made.visitor, more, most_alike)
    assert len(pages) > 100
    answers = [made.visitor.get(f"/calls/{uid}/result.json") for uid in uids]
    results = [sinks.whole(answer) for answer in answers if answer.status_code == 200]
    assert len(results) == len(uids) - 1, "the tool `err` has a JSON-RPC error instead of a result"
    assert b"API_TOKEN" in results[0], "the server did have it, and said so"
    return {"pages": b"\n".join([*pages.values(), *refused]), "JSON": b"\n".join(results)}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.long])])
def stack(request: pytest.FixtureRequest, make_stack: Callable[..., Stack], tmp_path: Path) -> Iterator[Stack]:
    database = {"DATABASE_URL": request.getfixturevalue("postgres_database")} if request.param == "postgresql" else {}
    with TemporaryDirectory(prefix="canary-") as folder:  # short: it becomes the path of a socket
        redis = valkey.start(Path(folder) / "v.sock", "--appendonly", "yes")
        try:
            env = settings(tmp_path) | database | {"REDIS_URL": f"unix://{folder}/v.sock"}
            started: Stack = make_stack(env=env, administrator=not database).start()
            if database:
                started.create_admin()
            yield started
            started.stop()
        finally:
            valkey.stop(redis)


@pytest.mark.parametrize("most_alike", [2, pytest.param(sinks.MOST_PAGES, marks=pytest.mark.long)], ids=["some", "all"])
def test_the_search_finds_each_leak_and_then_there_is_none(stack: Stack, most_alike: int, tmp_path: Path) -> None:
    with world(stack, tmp_path) as made, sinks.Monitor(stack) as monitor, sinks.Listener(stack, made.visitor) as heard:
        tools_known(made, "neighbour")
        found, expected = planted(made, monitor, heard)
        assert found == expected
        assert len(expected) == 12

        swept = everything_goes_wrong(made, heard, most_alike) | {
            "socket": heard.heard,
            "Redis commands": monitor.seen,
            "Redis files": sinks.redis_files(stack),
            "logs": stack.output.encode(),
            "database": sinks.rows_of(stack, audit=False) + sinks.database_files(stack),
            "audit": sinks.rows_of(stack, audit=True),
            "exports": sinks.exports(stack, made.visitor),
            "command lines": sinks.command_lines(stack.family()),
            "other servers": neighbours(stack) + made.stranger.sent(),
        }
        search = Searcher(made.secrets)
        hits = {sink: search.hits(data) for sink, data in swept.items()}
        assert {"account", "account key", "proof key", "token of workload", "token of enterprise"} < made.secrets.keys()
        assert sum("given to" in name for name in made.secrets) >= 5, "tokens of each, and an assertion"
        print(json.dumps({sink: len(data) for sink, data in swept.items()}))
        shown = {sink: search.around(swept[sink]) for sink, found in hits.items() if found}
        assert {sink: found for sink, found in hits.items() if found} == {}, shown
        assert "No tampering found" in stack.manage("verify_audit")
