"""Signs a person in at the authorization server of the peer `protected`, without a browser."""

import time
from urllib.parse import parse_qsl, urlsplit

import httpx

from tests.e2e.sockets import Visitor
from tests.tools.stack import Stack

SECONDS = 90


def signed_in(
    stack: Stack, visitor: Visitor, url: str, slug: str, secret: str, how: str = "client_secret_basic"
) -> str:
    """Sign in to the server `slug` at `url` with a manually registered client. Returns the redeemed code."""
    client = {"client_id": "by-hand", "client_secret": secret}
    known = client | {"redirect_uris": [f"{visitor.base_url}/sign-in/callback/"], "scope": "tools"}
    known |= {"token_endpoint_auth_method": how}
    httpx.post(url.replace("/mcp", "/control/client"), json=known, trust_env=False).raise_for_status()
    begun = visitor.post(f"/servers/{slug}/sign-in/", client)
    assert begun.status_code == 302, begun.text[:3000]
    page = begun.headers["location"]
    uid = page.split("/")[-2].replace("-", "")
    _reached(stack, uid, "ready")
    back = httpx.get(visitor.get(f"{page}go/").headers["location"], trust_env=False).headers["location"]
    query = dict(parse_qsl(urlsplit(back).query))
    visitor.request("GET", "/sign-in/callback/", params=query)
    _reached(stack, uid, "done")
    return query["code"]


def _reached(stack: Stack, uid: str, state: str) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        (row,) = stack.rows("SELECT state, detail FROM servers_signin WHERE uid = ?", uid)
        if row["state"] == state:
            return
        assert row["state"] != "failed", row["detail"]
        assert time.monotonic() < deadline, f"the sign-in is not {state}\n{stack.output[-3000:]}"
        time.sleep(0.2)  # no event reports rows of another process
