"""Each credential at each endpoint with each verb: what succeeds is exactly what its scopes, its reach and its state allow."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from tests.sessions.agents.product import Agent, Product, response_of

pytestmark = pytest.mark.up
ALL: Final = ("list", "read", "call", "call:destructive")
SCOPES: Final = (("list",), ("read",), ("call",), ALL)
STATES: Final = ("active", "revoked", "expired", "disabled")
ENDPOINTS: Final = ("legacy", "modern", "matrix", "nowhere")
#: which servers each kind of credential reaches, and the only endpoint that it counts for, if there is one
KINDS: Final = {
    "token": ({"legacy"}, None),
    "grant": ({"legacy"}, "legacy"),
    "grant of a bundle": ({"legacy", "modern"}, "matrix"),
}
ALIASES: Final = {"legacy": "one", "modern": "two"}
#: a verb, the scope that it needs, and its params at a server; names of tools get the alias of a bundle
VERBS: Final[list[tuple[str, str, dict[str, Any]]]] = [
    ("tools/list", "list", {}),
    ("resources/list", "list", {}),
    ("prompts/list", "list", {}),
    ("prompts/get", "read", {"name": "summarise", "arguments": {"text": "x"}}),
    ("tools/call", "call", {"name": "echo", "arguments": {"text": "x"}}),
    ("tools/call", "call:destructive", {"name": "counter", "arguments": {"id": "matrix"}}),
]
SETUP = """
import json
from datetime import timedelta
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.utils import timezone
from servers.agents import tokens
from servers.agents.oauth import grants
from servers.agents.oauth.grants import Consent
from servers.audit.record import Actor
from servers.bundles import changing
from servers.bundles.changing import BundleInput, Membership
from servers.models import AgentToken, OAuthClient, OAuthCode, Server
settings.PUBLIC_URL = "BASE_URL"  # a grant is for an address; a shell does not know the port of the web process
User = get_user_model()
ada = User.objects.get(username="ada")
servers = [Server.objects.get(slug=slug) for slug in ("legacy", "modern")]
changing.create(Actor.of_user(ada), ada, BundleInput("Matrix", [Membership(server, alias) for server, alias in zip(servers, ("one", "two"))], "matrix"))
client = OAuthClient.objects.create(kind="added", client_id="matrix", name="Matrix", redirect_uris=["http://127.0.0.1/cb"])
permissions = Permission.objects.filter(codename__in=["view_server", "call_tool"])
found = []
for number, (kind, scopes, state) in enumerate(CREDENTIALS):
    user = User.objects.create_user(f"matrix{number}", password="x")
    user.user_permissions.set(permissions)
    user, scopes = User.objects.get(pk=user.pk), [f"mcp:{scope}" for scope in scopes]
    if kind == "token":
        issued = tokens.issue(Actor.of_user(user), user, tokens.NewToken("matrix", 7, scopes, servers[:1]))
        token, text = issued.token, issued.text
    else:
        endpoint = grants.endpoint_of(user, slug="legacy" if kind == "grant" else "matrix")
        grants.consent(Actor.of_user(user), user, Consent(client, endpoint, scopes, 7, "http://127.0.0.1/cb", "c" * 43))
        code = OAuthCode.objects.latest("pk")
        token, text = code.grant, grants.redeem(code).access
    rows = AgentToken.objects.filter(pk=token.pk)
    if state == "revoked":
        tokens.revoke(Actor.of_user(user), user, token)
    elif state == "expired":
        rows.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif state == "disabled":
        User.objects.filter(pk=user.pk).update(is_active=False)
    found.append(text)
print("MATRIX", json.dumps(found))
"""


@dataclass(frozen=True)
class Credential:
    kind: str
    scopes: tuple[str, ...]
    state: str
    text: str

    def may(self, endpoint: str, server: str, scope: str) -> bool:
        reaches, audience = KINDS[self.kind]
        return (
            self.state == "active"
            and scope in self.scopes
            and ("call" in self.scopes or scope != "call:destructive")
            and server in reaches
            and audience in (None, endpoint)
        )

    def asks(self, endpoint: str, server: str, scope: str) -> bool:
        """A call that it may not make by itself waits for approval."""
        return scope not in self.scopes and scope == "call:destructive" and self.may(endpoint, server, "call")


@pytest.fixture(scope="module")
def credentials(product: Product) -> list[Credential]:
    wanted = [
        (kind, scopes, state)
        for kind, scopes, state in itertools.product(KINDS, SCOPES, STATES)
        if scopes == ALL or state == "active"
    ]
    code = SETUP.replace("CREDENTIALS", repr(wanted)).replace("BASE_URL", product.stack.base_url)
    texts = json.loads(product.stack.shell(code).split("MATRIX ", 1)[1])
    return [Credential(*one, text) for one, text in zip(wanted, texts, strict=True)]


def requests(endpoint: str) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Server, verb, scope and params. Requests for a bundle as a whole use the first server."""
    for verb, scope, params in VERBS:
        if endpoint != "matrix":
            yield endpoint, verb, scope, params
        elif "name" not in params:
            yield "legacy", verb, scope, params
        else:
            for server, alias in ALIASES.items():
                yield server, verb, scope, params | {"name": f"{alias}__{params['name']}"}


def succeeds(client: httpx.Client, agent: Agent, verb: str, params: dict[str, Any], waits: bool) -> bool:
    """With `waits` it may wait for approval instead. Leaving cancels it, so it does not reach the server."""
    body, headers = agent.modern(verb, params)
    try:
        answer = client.post(agent.url, json=body, headers=agent.headers(**headers), timeout=2.5 if waits else 60)
    except httpx.ReadTimeout:
        assert waits, "no answer"
        return False
    if answer.status_code != 200:
        return False
    message = response_of(answer)
    return "result" in message and not message["result"].get("isError")


def test_nothing_succeeds_but_what_a_credential_allows(product: Product, credentials: list[Credential]) -> None:
    for slug in ("legacy", "modern"):  # connected, so that no request waits for that
        assert product.agent(product.token(), slug).ask_modern("tools/list").status_code == 200
    unexpected, seen, waited, counted = [], {True: 0, False: 0}, 0, 0
    with httpx.Client() as client:
        for credential, endpoint in itertools.product(credentials, ENDPOINTS):
            agent = product.agent(credential.text, endpoint)
            for server, verb, scope, params in requests(endpoint):
                expected = endpoint != "nowhere" and credential.may(endpoint, server, scope)
                waits = endpoint != "nowhere" and credential.asks(endpoint, server, scope)
                found = succeeds(client, agent, verb, params, waits)
                seen[found] += 1
                waited += waits
                counted += expected and scope == "call:destructive"
                if found is not expected:
                    unexpected.append((credential, endpoint, verb, params.get("name"), found))
    assert unexpected == []
    assert seen[True] > 20
    assert seen[False] > 400
    assert waited == 5  # of the token at an endpoint and in a bundle, of the grant, of that of a bundle at two servers
    happened = [line.partition("\t")[0] for line in product.effects.read_text().splitlines()]
    assert happened.count("matrix") == counted == 5, "also of no call whose answer came too late"


def test_a_session_of_another_credential_is_no_session(product: Product, credentials: list[Credential]) -> None:
    mine, others = [one for one in credentials if one.kind == "token" and one.state == "active"][-2:]
    session = product.agent(mine.text, "legacy")
    assert session.initialize().status_code == 200
    thief = product.agent(others.text, "legacy")
    thief.session = session.session
    headers = {"MCP_Protocol_Version": "2025-11-25"}
    assert thief.post(thief.body("ping"), **headers).status_code == 404
    assert session.post(session.body("ping"), **headers).status_code == 200
