"""What a page of each class costs a browser: with an empty cache, and when it was open before."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import expect

from mcpadmin.settings import DEMO_COMMAND
from tests.e2e.walk import Walk

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
COLD_BYTES, COLD_REQUESTS, WARM_BYTES = 150_000, 12, 30_000
#: charts are drawn by a library of 20 kB; pages of a server have the most markup
HEAVIER = 180_000
CHARTS = ("/", "/explorer/", "/explorer/charts/")
OF_SERVER = ("resources", "prompts", "network", "protocol", "settings")
HEAVY = (*CHARTS, "/servers/add/", *(f"/servers/orders/{name}/" for name in OF_SERVER))
#: with a style sheet and a script more, and what they ask for at once
MORE_REQUESTS = {"/explorer/": 14, "/servers/orders/network/": 13}
PAGES = (
    *("/servers/", "/servers/add/", "/servers/import/", "/sessions/", "/inbox/", "/subscriptions/", "/agents/"),
    *("/agents/bundles/", "/credentials/", "/exports/", "/audit/proof/", "/users/", "/jobs/", "/storage/", "/privacy/"),
    *("/settings/", "/browser-reports/list/", "/account/", "/servers/orders/tools/?tool=greet"),
    *("/servers/orders/resources/", "/servers/orders/prompts/", "/servers/orders/logs/", "/servers/orders/protocol/"),
    *("/servers/orders/network/", "/servers/orders/history/", "/servers/orders/settings/", "/servers/orders/info/"),
    *("/servers/orders/saved/", "/servers/orders/package/", "/servers/orders/definitions/tool/?key=greet"),
)
#: the lightest of the shell, one with charts, and one of a server
SOME = ("/servers/", "/", "/servers/orders/tools/?tool=greet")


@contextmanager
def weighed(page: Any) -> Iterator[dict[str, float]]:
    """Bytes on the wire and requests, without those that the cache answered and those of the live connection."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    total, cached, kinds = {"bytes": 0.0, "requests": 0}, set(), {}

    def answered(event: dict[str, Any]) -> None:
        kinds[event["requestId"]] = event["response"]["url"]
        if event["response"].get("fromDiskCache"):
            cached.add(event["requestId"])

    def finished(event: dict[str, Any]) -> None:
        if event["requestId"] not in cached and not kinds.get(event["requestId"], "data:").startswith("data:"):
            total["bytes"] += event["encodedDataLength"]
            total["requests"] += 1

    session.on("Network.responseReceived", answered)
    session.on("Network.requestServedFromCache", lambda event: cached.add(event["requestId"]))
    session.on("Network.loadingFinished", finished)
    yield total
    session.detach()


def loaded(walker: Any, stack: Any, path: str) -> tuple[dict[str, float], dict[str, float]]:
    """The weight of a page with an empty cache, and the second time."""
    page = walker(stack, signed_in=True).page
    with weighed(page) as cold:
        page.goto(path, wait_until="networkidle")
    with weighed(page) as warm:
        page.goto(path, wait_until="networkidle")
    page.context.close()
    return cold, warm


def add_orders(ada: Walk) -> None:
    ada.register_stdio("Orders", sys.executable, DEMO_COMMAND[1:])
    ada.wait_for_state("Ready")
    ada.open_tool("orders", "greet")
    ada.fill_argument("name", "Ada")
    ada.run_tool()
    expect(ada.result()).to_contain_text("Succeeded")


@pytest.mark.parametrize("paths", [SOME, pytest.param((*CHARTS, *PAGES), marks=pytest.mark.long)], ids=["some", "all"])
def test_every_page_is_light_at_first_and_lighter_the_second_time(own_stack, walker, capsys, paths) -> None:
    if not own_stack.rows("SELECT 1 FROM servers_server"):
        add_orders(walker(own_stack, signed_in=True))
    problems, most = [], {"cold": (0.0, ""), "warm": (0.0, ""), "requests": (0, "")}
    for path in paths:
        heavy = path in HEAVY or path.startswith("/servers/orders/tools/")
        limit, requests = HEAVIER if heavy else COLD_BYTES, MORE_REQUESTS.get(path, COLD_REQUESTS)
        for _ in range(4):  # a live change in these seconds makes the page ask for a part, which no load costs
            cold, warm = loaded(walker, own_stack, path)
            if cold["bytes"] <= limit and cold["requests"] <= requests and warm["bytes"] <= WARM_BYTES:
                break
        else:
            problems.append(f"{path}: cold {cold}, warm {warm}")
        for name, value in (("cold", cold["bytes"]), ("warm", warm["bytes"]), ("requests", cold["requests"])):
            most[name] = max(most[name], (value, path))
    with capsys.disabled():
        print(f"\n{len(paths)} pages, at most: {most}")
    assert not problems, "\n".join(problems)
