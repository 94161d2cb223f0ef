"""Six configuration files of other clients produce the expected proposal for each server."""

from pathlib import Path
from typing import Any

import pytest

from servers.enums import TransportKind, ValueKind
from servers.registration import registering
from servers.registration.importing.document import read
from servers.registration.importing.planning import Plan, Proposal, plan
from tests.servers.cast import header, over_http

pytestmark = pytest.mark.django_db

CONFIGS = Path(__file__).parent / "configs"
STDIO, AUTO, STREAMABLE, SSE = (
    TransportKind.STDIO,
    TransportKind.AUTO_HTTP,
    TransportKind.STREAMABLE_HTTP,
    TransportKind.HTTP_SSE,
)

# (file, server): (verdict, transport, command with arguments or URL, values by name, needed, part of reason or note) A
# value is "sealed", "needed" or, when it is plain, its text.
EXPECTED: dict[tuple[str, str], tuple[str, str, str, dict[str, str], list[str], str]] = {
    ("claude_desktop.json", "filesystem"): (
        "create", STDIO, "npx -y @modelcontextprotocol/server-filesystem /srv/data", {}, [], "",
    ),
    ("claude_desktop.json", "github"): (
        "create", STDIO, "npx -y @modelcontextprotocol/server-github",
        {"GITHUB_PERSONAL_ACCESS_TOKEN": "sealed", "LOG_LEVEL": "debug"}, [], "",
    ),
    ("claude_desktop.json", "postgres"): (
        "create", STDIO, "docker run -i --rm -e PGPASSWORD=canary-arg-20d4 acme/postgres-mcp", {}, [],
        "An argument looks like a secret",
    ),
    ("cursor.json", "linear"): (
        "create", AUTO, "https://mcp.linear.example/mcp", {"Authorization": "Bearer ${LINEAR_TOKEN}"}, [], "",
    ),
    ("cursor.json", "search"): ("create", STREAMABLE, "https://search.example/mcp", {}, [], ""),
    ("cursor.json", "billing"): (
        "create", AUTO, "https://billing.example/mcp", {"Authorization": "sealed", "X-Region": "eu"}, [], "",
    ),
    ("cursor.json", "tests"): (
        "create", STDIO, "python ${workspaceFolder}/tools/server.py", {}, ["workspaceFolder"], "envFile is not supported",
    ),
    ("windsurf.json", "figma"): ("create", SSE, "https://figma.example/sse", {}, [], ""),
    ("windsurf.json", "notes"): (
        "create", AUTO, "https://notes.example/mcp", {"API_KEY": "needed"}, ["value:API_KEY"],
        "Ignored: disabledTools",
    ),
    ("vscode.jsonc", "github"): (
        "create", AUTO, "https://api.github.example/mcp/", {"Authorization": "needed"}, ["input:ghcr-token"], "",
    ),
    ("vscode.jsonc", "aws"): (
        "create", STDIO, "uvx awslabs.core-mcp-server@latest --region ${input:region}", {"AWS_REGION": "needed"},
        ["input:region"], "",
    ),
    ("vscode.jsonc", "events"): ("create", SSE, "https://events.example/sse", {}, [], ""),
    ("codex.toml", "context7"): (
        "create", STDIO, "npx -y @upstash/context7-mcp", {"CONTEXT7_API_KEY": "sealed"}, [], "",
    ),
    ("codex.toml", "figma"): (
        "create", AUTO, "https://mcp.figma.example/mcp",
        {"X-Figma-Region": "us-east-1", "X-Trace": "${TRACE_ID}", "Authorization": "Bearer ${FIGMA_OAUTH_TOKEN}"}, [], "",
    ),
    ("codex.toml", "paused"): ("create", STDIO, "uvx acme-mcp", {}, [], ""),
    ("broken.json", "twice"): ("refuse", "", "", {}, [], "“twice” is defined twice"),
    ("broken.json", "env-twice"): ("refuse", "", "", {}, [], "“TOKEN” is defined twice"),
    ("broken.json", "Orders"): (
        "change", STREAMABLE, "https://orders.example/v2/mcp", {"Authorization": "sealed"}, [], "",
    ),
    ("broken.json", "Stable"): ("same", AUTO, "https://stable.example/mcp", {}, [], ""),
    ("broken.json", "both"): ("refuse", "", "", {}, [], "Both a command and a URL"),
    ("broken.json", "neither"): ("refuse", "", "", {}, [], "Neither a command nor a URL"),
    ("broken.json", "gopher"): ("refuse", "", "", {}, [], "“gopher” is not a transport"),
    ("broken.json", "user"): ("refuse", "", "", {}, [], "Move the username and password"),
    ("broken.json", "scheme"): ("refuse", AUTO, "ftp://files.example/mcp", {}, [], "Start the URL with http"),
    ("broken.json", "own-header"): (
        "refuse", AUTO, "https://host.example/mcp", {"Host": "internal"}, [], "Host is set by mcpadmin on each request",
    ),
    ("broken.json", "split"): (
        "refuse", AUTO, "https://split.example/mcp", {"X-A": "one\r\nX-B: two"}, [], "one line without control",
    ),
    ("broken.json", "text"): ("refuse", "", "", {}, [], "not an object with a command or a URL"),
    ("broken.json", "good"): ("create", STDIO, "npx -y @acme/good", {}, [], "The command line was split"),
}  # fmt: skip


def planned(admin: Any, file: str) -> dict[str, Proposal]:
    return {proposal.entry.name: proposal for proposal in plan(admin, read((CONFIGS / file).read_text()))}


@pytest.fixture
def stored(admin: Any, actor: Any) -> None:
    """Existing servers for the broken file: one differs from it, the other matches."""
    registering.register(actor, admin, over_http(url="https://orders.example/mcp", values=[header()], notes="kept"))
    registering.register(
        actor, admin, over_http(name="Stable", url="https://stable.example/mcp", transport=TransportKind.AUTO_HTTP)
    )


@pytest.mark.parametrize("file", sorted({file for file, _ in EXPECTED}))
def test_a_file_has_these_servers_and_no_others(file: str, admin: Any, stored: None) -> None:
    assert set(planned(admin, file)) == {name for of, name in EXPECTED if of == file}


@pytest.mark.parametrize(("file", "name"), sorted(EXPECTED), ids=lambda part: part)
def test_each_server_of_a_file_becomes_what_the_table_says(file: str, name: str, admin: Any, stored: None) -> None:
    verdict, transport, endpoint, values, needs, words = EXPECTED[file, name]
    proposal = planned(admin, file)[name]
    assert proposal.verdict == verdict, proposal.reasons
    assert [need.key for need in proposal.entry.needs] == needs
    assert words in " ".join((*proposal.reasons, *proposal.entry.notes))
    found = proposal.registration or proposal.entry.registration
    if found is None:
        assert not transport
        return
    assert found.transport == transport
    assert (found.url or " ".join([found.command, *found.arguments])) == endpoint
    kind = ValueKind.ENVIRONMENT if transport == STDIO else ValueKind.HEADER
    assert all(value.kind == kind for value in found.values)
    assert {value.name: shown(value) for value in found.values} == values


def shown(value: Any) -> str:
    if value.needed:
        assert value.secret
        return "needed"
    return "sealed" if value.secret else value.text()


def test_a_change_is_reported_field_by_field_and_no_secret_is_in_it(admin: Any, stored: None) -> None:
    proposal = planned(admin, "broken.json")["Orders"]
    told = {difference.field: (difference.current, difference.yours) for difference in proposal.differences}
    assert told == {
        "URL": ("https://orders.example/mcp", "https://orders.example/v2/mcp"),
        "Authorization": ("(secret)", "(new secret)"),
    }


def test_times_and_switches_of_other_clients_are_kept(admin: Any) -> None:
    context7 = planned(admin, "codex.toml")["context7"].registration
    assert context7 is not None
    assert (context7.connect_timeout_seconds, context7.request_timeout_seconds) == (20, 2400)
    assert context7.total_timeout_seconds >= 2400
    assert not planned(admin, "codex.toml")["paused"].entry.enabled
    assert not planned(admin, "windsurf.json")["figma"].entry.enabled
    assert planned(admin, "windsurf.json")["notes"].entry.enabled


def test_the_verdicts_are_counted(admin: Any, stored: None) -> None:
    verdicts = [proposal.verdict for proposal in planned(admin, "broken.json").values()]
    assert {verdict: verdicts.count(verdict) for verdict in Plan} == {
        Plan.CREATE: 1,
        Plan.CHANGE: 1,
        Plan.SAME: 1,
        Plan.REFUSE: 10,
    }
