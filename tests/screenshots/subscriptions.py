"""Subscriptions for the screenshots: a live one, created through the pages, and two with a history, created as rows."""

from playwright.sync_api import Page, expect

from tests.tools.stack import Stack

CLOCK = "demo://clock"
LISTENING_MS = 40_000
_PAST = """
import json
from sessions.models import McpSession, Subscription
from sessions.connections.commands import shared_session
from servers.models import Server
from tests.sessions.subscriptions.rows import add_gap, add_hours, add_version, make_subscription

session = shared_session(Server.objects.get(slug={slug!r}))
config = make_subscription(session, "file:///etc/station.toml", title="Station", webhook_url="https://hooks.example.com/mcp")
lines = [f"[sensor.{{n}}]\\nport = {{8000 + n}}\\nenabled = true\\n" for n in range(8)]
add_version(config, "".join(lines), minutes_ago=600, cause="subscribed")
lines[3] = lines[3].replace("8003", "9003")
add_gap(config, began=250, ended=240, changed=False)
add_gap(config, began=200, ended=120, changed=True)
add_version(config, "".join(lines), minutes_ago=120, cause="after_gap", events=4)
add_version(config, "".join(lines[:5]) + "# the rest is off\\n" + "".join(lines[6:]), minutes_ago=30)
add_hours(config, 3, 0, 1, 0, 5, 9, 2, 0, 0, 1)
config.deliveries.create(number=3, state="delivered", attempts=1, created_at=config.changed_at, last_status=204)
config.deliveries.create(number=2, state="given_up", attempts=7, created_at=config.changed_at, last_status=503)
orders = make_subscription(session, "orders://open", state="refused", reason="Method not found: resources/subscribe")
value = {{"total": 2, "orders": [{{"id": 11, "state": "paid"}}, {{"id": 12, "state": "open", "note": "please call"}}]}}
add_version(orders, json.dumps(value), minutes_ago=90, cause="subscribed", mime_type="application/json")
value["orders"].insert(0, {{"id": 13}})
value["orders"][2]["note"], value["total"] = "please call after nine", 3
add_version(orders, json.dumps(value), minutes_ago=20, mime_type="application/json")
add_gap(orders, began=5)
Subscription.objects.filter(uri="demo://clock").update(notify=False)  # or every picture shows its message
print(config.uid, orders.uid)
"""


def subscribe(page: Page, server: str) -> None:
    """Subscribe to the demo server's clock on its page."""
    page.goto(f"/servers/{server}/resources/?uri={CLOCK}")
    place = page.locator("[data-subscribe]")
    place.get_by_role("button", name="Subscribe").click()
    expect(place).to_contain_text("Listening", timeout=LISTENING_MS)


def with_a_past(stack: Stack, slug: str) -> tuple[str, str]:
    """Seed two subscriptions of a server that is never opened. Returns the uids of the text one and the JSON one."""
    text, structure = stack.shell(_PAST.format(slug=slug)).split()[-2:]
    return text, structure
