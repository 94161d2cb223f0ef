"""The command line of MCP Inspector through the door, on the endpoint of a server and on a bundle."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.peers.peers import HERE, inspector, peer_python
from tests.sessions.agents.product import Product
from tests.sessions.agents.test_bundles import bundle

pytestmark = [pytest.mark.up, pytest.mark.long]
Run = Callable[..., Any]


def run_of(product: Product, slug: str, era: str, token: str) -> Run:
    def run(method: str, *words: str, status: int = 0) -> Any:
        target = [*inspector(), "--cli", product.url(slug), "--transport", "http", "--protocol-era", era]
        options = ["--header", f"Authorization: Bearer {token}", "--format", "json", "--quiet", "--method", method]
        done = subprocess.run([*target, *options, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == status, done.stdout[-2_000:] + done.stderr[-2_000:]
        return json.loads(done.stdout or done.stderr)

    return run


@pytest.fixture(scope="module")
def team(product: Product) -> str:
    for name in ("Inspected web", "Inspected wiki"):
        product.register(name, (str(peer_python("sdk2")), [str(HERE / "searching_server.py"), name]))
    bundle(product, "inspected", ("legacy", "own"), ("inspected-web", "web"), ("inspected-wiki", "wiki"))
    return "inspected"


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("place", ["legacy", "modern", "bundle"])
def test_inspector_does_everything_through_the_door(product: Product, team: str, place: str, era: str) -> None:
    label = f"inspector-{place}-{era}"
    run = run_of(product, team if place == "bundle" else place, era, product.token(label=label))
    prefix = "own__" if place == "bundle" else ""
    tools = {tool["name"] for tool in run("tools/list")["result"]["tools"]}
    assert {prefix + "echo", prefix + "add"} <= tools
    assert place != "bundle" or {"web__search", "wiki__search"} <= tools
    told = run("tools/call", "--tool-name", f"{prefix}echo", "--tool-arg", "text=from Inspector")["result"]
    assert told["content"][0]["text"] == "from Inspector"
    told = run("tools/call", "--tool-name", f"{prefix}add", "--tool-args-json", '{"a": 20, "b": 22}')["result"]
    assert told["structuredContent"] == {"total": 42, "terms": [20, 22]}
    run("tools/call", "--tool-name", f"{prefix}slow", "--tool-args-json", '{"steps": 3, "delay": 0.05}')
    run("tools/call", "--tool-name", f"{prefix}fail", "--tool-arg", "message=as asked", status=5)
    run("tools/call", "--tool-name", f"{prefix}nope", status=5)
    uri = run("resources/list")["result"]["resources"][0]["uri"]
    assert run("resources/read", "--uri", uri)["result"]["contents"][0]["uri"] == uri
    assert run("resources/templates/list")["result"]["resourceTemplates"]
    prompts = run("prompts/list")["result"]["prompts"]
    prompt = next(one for one in prompts if one.get("arguments") and one["name"].startswith(prefix))
    words = [f"{argument['name']}=a" for argument in prompt["arguments"]]
    assert run("prompts/get", "--prompt-name", prompt["name"], "--prompt-args", *words)["result"]["messages"]
    if era == "legacy":
        run("logging/setLevel", "--log-level", "info")
    states = product.stack.rows(
        "SELECT call.state, count(*) AS number FROM mcp_sessions_call call JOIN mcp_sessions_agentcall agent "
        "ON agent.call_id = call.id WHERE agent.token_name = ? GROUP BY call.state",
        label,
    )
    assert {row["state"]: row["number"] for row in states} == {"succeeded": 5, "tool_error": 1}
