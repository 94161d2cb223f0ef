"""Clients that sign people in: the OAuth clients of the official SDKs against the product, from the 401 to a call."""

import json
import re
import subprocess
import time
from typing import Any

import httpx
import pytest

from tests.peers.peers import HERE, peer_python
from tests.sessions.agents.product import Product
from tests.tools.prepared import ADMIN

pytestmark = pytest.mark.up
OPEN = """
from servers.models import Instance
Instance.objects.update_or_create(pk=1, defaults={"oauth_registration": True})
"""
#: nothing resolves it (RFC 6761)
DOCUMENT = "https://program.invalid/client.json"


@pytest.mark.parametrize("face", ["sdk1", "sdk2"])
def test_a_program_signs_its_person_in_and_calls_until_the_grant_is_revoked(product: Product, face: str) -> None:
    product.stack.shell(OPEN)
    done = subprocess.run(
        [peer_python(face), HERE / "oauth_program.py", face, product.url("legacy"), *ADMIN],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-6_000:]
    found = json.loads(done.stdout.split("FOUND ", 1)[1])
    assert found["texts"] == ["signed in", "signed in"]
    assert found["refreshed"]
    assert len(found["consents"]) == 1
    assert f"Client with {face}" in found["consents"][0]
    calls = [row for row in product.calls(target="echo") if row["token_name"] == f"Client with {face}"]
    assert [row["state"] for row in calls] == ["succeeded", "succeeded"]
    agent = product.agent(found["token"])
    assert "result" in agent.ask_modern("tools/list").json()
    elsewhere = product.agent(found["token"], "modern").ask_modern("tools/list")
    assert elsewhere.status_code == 401
    assert "/.well-known/oauth-protected-resource/mcp/modern" in elsewhere.headers["www-authenticate"]
    product.stack.shell(REVOKE.format(name=f"Client with {face}"))
    for _ in range(50):
        refused = agent.ask_modern("tools/list")
        if refused.status_code == 401:
            break
        time.sleep(0.1)
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]


REVOKE = """
from servers.agents import tokens
from servers.audit.record import Actor
from servers.models import AgentToken
grant = AgentToken.objects.get(name={name!r})
tokens.revoke(Actor.of_user(grant.user), grant.user, grant)
"""


def test_a_worker_reads_the_document_of_a_client_and_the_page_says_what_went_wrong(product: Product) -> None:
    base = product.stack.base_url
    url = f"{base}/oauth/authorize?client_id={DOCUMENT}&response_type=code&redirect_uri=http://127.0.0.1/cb"
    with httpx.Client(timeout=60, follow_redirects=True) as browser:
        asked = browser.get(url)
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', asked.text)
        assert found is not None
        login = {"login": ADMIN[0], "password": ADMIN[1], "csrfmiddlewaretoken": found.group(1)}
        page: Any = browser.post(str(asked.url), data=login, headers={"Referer": str(asked.url)})
        for _ in range(100):
            if "could not be read" in page.text:
                break
            time.sleep(0.1)
            page = browser.get(url)
    assert "program.invalid" in page.text
    assert "was not found" in page.text, page.text[-3_000:]
