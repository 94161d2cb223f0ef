"""Requests of an authorization flow go to untrusted addresses: guarded, bounded, and never redirected to another
origin."""

import gzip

import pytest

from sessions.mcp.core.errors import AddressRefused, AuthorizationError, Fault, McpError
from sessions.mcp.oauth.exchange import HttpRequest, form, get
from sessions.mcp.transports.authorization_http import AuthorizationHttp
from sessions.mcp.transports.egress import OutboundPolicy
from tests.sessions.mcp.transports.making import LOCAL
from tests.sessions.mcp.transports.scripted_http import Asked, Line, Peer, scripted_http


def secret_form(url: str) -> HttpRequest:
    return form(url, {"refresh_token": "r"}, {"Authorization": "Basic xyz"})


async def failed(request: HttpRequest, policy: OutboundPolicy = LOCAL, seconds: float = 10) -> McpError:
    with pytest.raises(McpError) as caught:
        await AuthorizationHttp(policy, seconds=seconds)(request)
    assert not caught.value.may_have_run
    return caught.value


async def test_an_answer_is_taken_whole_with_its_status() -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.reply(400, b'{"error":"x"}', DPoP_Nonce="n")

    async with scripted_http(script) as peer:
        response = await AuthorizationHttp(LOCAL)(get(peer.url))
    assert (response.status, response.json(), response.headers["dpop-nonce"]) == (400, {"error": "x"}, "n")
    assert "cookie" not in peer.asked[0].headers
    assert peer.asked[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("host", ["xn--i-7iq.invalid", "xn--"])
async def test_a_host_whose_name_cannot_be_shown_in_unicode_fails_as_any_other(host: str) -> None:
    assert host in (await failed(get(f"https://{host}/x"))).detail


@pytest.mark.parametrize("url", ["https://999.1.1.1/token", f"https://as.example/{'x' * 70_000}"])
async def test_an_address_that_cannot_be_dialled_is_refused_in_words(url: str) -> None:
    refused = await failed(get(url))
    assert isinstance(refused, AuthorizationError)
    assert "is not valid" in refused.detail
    assert len(refused.detail) < 400


async def test_an_answer_over_64_kib_is_refused() -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.reply(200, b"x" * (64 * 1024 + 1))

    async with scripted_http(script) as peer:
        assert "exceeds the limit" in (await failed(get(peer.url))).detail


async def test_a_compressed_answer_is_not_inflated() -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.reply(200, gzip.compress(b"{}" + b" " * 1_000_000), Content_Encoding="gzip")

    async with scripted_http(script) as peer:
        assert "compressed" in (await failed(get(peer.url))).detail


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.hang()

    async with scripted_http(script) as peer:
        assert (await failed(get(peer.url), seconds=0.3)).fault is Fault.TIMEOUT


async def test_metadata_is_followed_within_its_origin_for_five_hops() -> None:
    async def script(asked: Asked, line: Line) -> None:
        hop = int(asked.path.rpartition("/")[2]) if asked.path[-1].isdigit() else 0
        await (line.json({"hop": hop}) if hop == last else line.reply(302, Location=f"/hop/{hop + 1}"))

    last = 5
    async with scripted_http(script) as peer:
        assert (await AuthorizationHttp(LOCAL)(get(peer.url))).json() == {"hop": 5}
        last = 6
        assert "in a loop" in (await failed(get(peer.url))).detail


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("kind", ["get", "form"])
async def test_nothing_is_followed_to_another_origin_and_no_secret_anywhere(kind: str, status: int) -> None:
    async def elsewhere(asked: Asked, line: Line) -> None:
        await line.json({})

    async def script(asked: Asked, line: Line) -> None:
        await line.reply(status, Location=target)

    async with scripted_http(elsewhere) as other, scripted_http(script) as peer:
        target = other.url if kind == "get" else peer.url + "/again"
        error = await failed(get(peer.url) if kind == "get" else secret_form(peer.url))
        assert error.fault is Fault.AUTHORIZATION_FAILED
        assert "redirects" in error.detail
        assert len(peer.asked) == 1
        assert other.asked == []


@pytest.mark.parametrize(
    "url", ["https://169.254.169.254/latest", "https://10.0.0.1/token", "https://[::ffff:10.0.0.1]/", "https://0x7f.1/"]
)
async def test_an_address_that_the_guard_refuses_is_not_connected_to(url: str) -> None:
    assert (await failed(get(url), OutboundPolicy())).fault in (Fault.ADDRESS_REFUSED, Fault.DNS_FAILED)


async def test_this_machine_is_refused_where_the_operator_did_not_allow_it() -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.json({})

    async with scripted_http(script) as peer:
        assert isinstance(await failed(secret_form(local_name(peer)), OutboundPolicy()), AddressRefused)
        assert peer.connections == 0


def local_name(peer: Peer) -> str:
    return peer.url.replace("127.0.0.1", "localhost")


@pytest.mark.parametrize(
    "url", ["http://as.example/token", "ftp://as.example", "http://10.0.0.1/", "file:///etc/passwd"]
)
async def test_what_is_no_https_address_is_refused_before_its_name_is_looked_up(url: str) -> None:
    assert isinstance(await failed(secret_form(url)), AuthorizationError)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_what_a_server_elsewhere_names_on_this_machine_gets_no_request(host: str) -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.json({})

    async with scripted_http(script) as peer:
        url = peer.url.replace("127.0.0.1", host)
        for request in (get(url), secret_form(url)):
            with pytest.raises(AuthorizationError, match="is on this machine and the server is not"):
                await AuthorizationHttp(LOCAL, server_url="https://mcp.example/mcp")(request)
        assert peer.connections == 0
        for entered in ({"server_url": "http://localhost:1/mcp"}, {"server_url": "ws://[::1]/"}):
            assert (await AuthorizationHttp(LOCAL, **entered)(get(url))).status == 200
        remote = AuthorizationHttp(LOCAL, server_url="https://mcp.example/", entered=["", "http://localhost:2/as"])
        assert (await remote(get(url))).status == 200


async def test_nor_does_another_spelling_of_this_machine() -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.json({})

    async with scripted_http(script) as peer:
        url = peer.url.replace("http://127.0.0.1", "https://[::ffff:127.0.0.1]")
        with pytest.raises(AddressRefused):
            await AuthorizationHttp(LOCAL, server_url="https://mcp.example/")(get(url))
        assert peer.connections == 0
