"""A request body is bounded before it is read, to what its route needs, and never touches a disk."""

import json
import os
from http import HTTPStatus
from pathlib import Path

import httpx
import psutil
import pytest

from mcpadmin.web import bodies, pages
from servers import limits
from tests.mcpadmin.web.raw import Raw, head
from tests.sessions.live.site import CSRF, Browser, Site

MIB = limits.MIB
ANONYMOUS = "Limit: 16 KiB per request without a sign-in. It cannot be changed."


@pytest.fixture(scope="module")
def ada(site: Site) -> Browser:
    return site.browser("ada")


def signed(browser: Browser) -> dict[str, str]:
    return {"Cookie": browser.cookie, "X-CSRFToken": CSRF, "Origin": browser.site.origin}


def written(site: Site) -> int:
    """Bytes that the web wrote to anything but its sockets."""
    counts = dict(line.split(": ") for line in Path(f"/proc/{site.web.pid}/io").read_text().splitlines())
    return int(counts["wchar"])


@pytest.mark.parametrize("path", ["/accounts/login/", "/setup/x/", "/servers/import/", "/no/such/page/", "/healthz"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_nameless_post_of_400_mb_is_refused_and_costs_neither_memory_nor_disk(
    site: Site, path: str, chunked: bool
) -> None:
    memory, wrote = psutil.Process(site.web.pid).memory_info().rss, written(site)
    with Raw(site) as raw:
        if chunked:
            raw.send(head("POST", path, Transfer_Encoding="chunked"))
            raw.send(b"100000\r\n" + b"a" * MIB + b"\r\n", times=400)
        else:
            raw.send(head("POST", path, Content_Length=str(400 * MIB)))
            raw.send(b"a" * MIB, times=400)
        answer = raw.answer()
    assert answer.status == 413
    assert ANONYMOUS in answer.text
    assert answer.headers["connection"] == "close"
    assert psutil.Process(site.web.pid).memory_info().rss - memory < 32 * MIB
    assert written(site) - wrote < MIB


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Length": "-5"}, 400),
        ({"Content_Length": "five"}, 400),
        ({"Content_Length": "9" * 5_000}, 413),
        ({"Content_Length": "5", "Transfer_Encoding": "chunked"}, 400),
        ({"Transfer_Encoding": "gzip, chunked"}, 400),
        ({"X_Long": "a" * 20_000}, 431),
        ({f"X_{number}": "a" for number in range(600)}, 431),
    ],
)
def test_a_request_with_impossible_headers_gets_a_page_and_is_closed(
    site: Site, headers: dict[str, str], status: int
) -> None:
    with Raw(site) as raw:
        raw.send(head("POST", "/accounts/login/", **headers))
        answer = raw.answer()
        assert (answer.status, raw.is_closed()) == (status, True)
    if status == 431:
        assert (
            "Limits: 16 KiB of address and headers per request, 500 header lines per request. They cannot be changed."
            in answer.text
        )


def test_a_body_that_is_longer_than_it_claims_does_not_become_part_of_the_request(site: Site) -> None:
    with Raw(site) as raw:
        raw.send(head("POST", "/accounts/login/", Content_Length="5") + b"a" * 100_000)
        assert raw.answer().status == 403  # no token
        assert raw.is_closed()


def test_a_client_that_asks_first_is_refused_before_it_sends_the_body(site: Site) -> None:
    with Raw(site) as raw:
        raw.send(head("POST", "/accounts/login/", Content_Length=str(MIB), Expect="100-continue"))
        assert raw.answer().status == 413


def test_a_sign_in_of_ordinary_size_is_read(site: Site) -> None:
    answer = httpx.post(f"{site.origin}/accounts/login/", data={"login": "a" * 10_000})
    assert answer.status_code == 403  # by Django: no token


@pytest.mark.parametrize(
    ("path", "limit"),
    [("/live/ticket/", bodies.FORM), ("/servers/demo/call/", bodies.ARGUMENTS), ("/servers/import/", bodies.IMPORT)],
)
def test_a_signed_in_user_may_send_what_the_route_needs(site: Site, ada: Browser, path: str, limit: str) -> None:
    most = limits.number(limit)
    fits = httpx.post(site.origin + path, headers=signed(ada), content=b"a" * most)
    assert fits.status_code != 413
    over = httpx.post(site.origin + path, headers=signed(ada), content=b"a" * (most + 1))
    assert over.status_code == 413
    assert limits.stated(limit) in over.text
    chunked = httpx.post(
        site.origin + path, headers=signed(ada), content=(b"a" * 65_536 for _ in range(most // 65_536 + 2))
    )
    assert chunked.status_code == 413


def test_every_route_with_a_limit_of_its_own_exists() -> None:
    assert {bodies.limit_of(path) for path in ("/servers/x/call/", "/servers/import/", "/nowhere/")} == {
        bodies.ARGUMENTS,
        bodies.IMPORT,
        bodies.FORM,
    }


def test_a_forged_session_has_the_limit_of_a_stranger(site: Site) -> None:
    forged = {"Cookie": "mcpadmin_session=" + "a" * 32}
    answer = httpx.post(f"{site.origin}/servers/import/", headers=forged, content=b"a" * 100_000)
    assert answer.status_code == 413
    assert f"{ANONYMOUS} If this was a form, sign in and send it again." in answer.text


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_an_agent_reads_a_refusal_as_an_error_of_its_protocol(site: Site, chunked: bool) -> None:
    content = (b"a" * 65_536 for _ in range(4)) if chunked else b"a" * 200_000
    answer = httpx.post(f"{site.origin}/mcp/demo", content=content)
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/json")
    words = f"Request too large. The request was discarded. {ANONYMOUS} Send a valid token."
    error = {"code": -32600, "message": words}
    assert answer.json() == {"jsonrpc": "2.0", "id": None, "error": error}


UNKNOWN = "This token is unknown, expired or revoked."


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_large_body_with_a_token_that_does_not_count_is_refused_as_a_small_one(site: Site, chunked: bool) -> None:
    """OAuth clients refresh their token after a 401 and after nothing else."""

    def asked(path: str) -> httpx.Response:
        content = (b"a" * 65_536 for _ in range(4)) if chunked else b"a" * 200_000
        return httpx.post(f"{site.origin}{path}", headers={"Authorization": "Bearer mca_x"}, content=content)

    agent, api = asked("/mcp/demo"), asked("/api/v1/calls")
    assert (agent.status_code, agent.headers["content-type"]) == (401, "application/json")
    assert agent.json()["error"] == {"code": 4010, "message": f"Unauthorized. {UNKNOWN}"}
    assert 'error="invalid_token"' in agent.headers["www-authenticate"]
    assert agent.headers["www-authenticate"].endswith('/.well-known/oauth-protected-resource/mcp/demo"')
    assert (api.status_code, api.headers["content-type"]) == (401, "application/problem+json")
    assert (api.json()["type"], api.json()["detail"]) == ("urn:mcpadmin:problem:unauthorized", UNKNOWN)
    assert api.headers["www-authenticate"] == 'Bearer error="invalid_token"'


@pytest.mark.parametrize("path", ["/mcp/demo", "/api/v1/calls"])
def test_what_no_token_may_send_is_too_large_whatever_the_token(site: Site, path: str) -> None:
    answer = httpx.post(f"{site.origin}{path}", headers={"Authorization": "Bearer mca_x"}, content=b"a" * 5 * MIB)
    assert (answer.status_code, "WWW-Authenticate" in answer.headers) == (413, False)


def test_a_refusal_of_the_api_is_problem_details() -> None:
    headers, body = pages.too_large(bodies.ANONYMOUS, "Send a valid token.").answer("problem")
    detail = f"The request was discarded. {ANONYMOUS} Send a valid token."
    kind, title = "urn:mcpadmin:problem:invalid", HTTPStatus(413).phrase
    assert json.loads(body) == {"type": kind, "title": title, "status": 413, "detail": detail}
    assert (b"Content-Type", b"application/problem+json") in headers


def test_the_challenge_for_an_endpoint_names_it_whatever_its_path_holds() -> None:
    [challenge] = [
        text
        for name, text in pages.token_refused('/mcp/a"\r\nX: b/').answer("json-rpc")[0]
        if name == b"WWW-Authenticate"
    ]
    assert challenge.endswith(b'/.well-known/oauth-protected-resource/mcp/a%22%0D%0AX%3A%20b"')


def test_a_page_whose_sign_in_expired_is_asked_to_sign_in_and_send_again(site: Site) -> None:
    """As with a small form: what the user typed stays in the page."""
    script = {"HX-Request": "true", "Cookie": "mcpadmin_session=" + "a" * 32}
    answer = httpx.post(f"{site.origin}/servers/demo/call/", headers=script, content=b"a" * 100_000)
    assert (answer.status_code, answer.headers["HX-Reswap"]) == (401, "none")
    large = httpx.post(f"{site.origin}/servers/demo/call/", headers=script, content=b"a" * 3 * MIB)
    assert large.status_code == 413


def test_an_uploaded_configuration_is_on_no_disk_while_it_arrives(site: Site, ada: Browser) -> None:
    with Raw(site) as raw:
        raw.send(head("POST", "/servers/import/", Content_Length="1000000", Cookie=ada.cookie) + b"a" * 500_000)
        received = httpx.get(f"{site.origin}/healthz")  # by now the web has read what came before
        assert received.status_code == 200
        assert deleted_files(site) == []


def deleted_files(site: Site) -> list[str]:
    """A temporary file has no name, but its descriptor shows it."""
    folder = Path(f"/proc/{site.web.pid}/fd")
    links = [os.readlink(descriptor) for descriptor in folder.iterdir() if descriptor.is_symlink()]
    return [link for link in links if link.endswith("(deleted)")]
