"""A sign-in: how the client registers, what the browser sends, and which parts of the answer are trusted."""

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from sessions.mcp.core.errors import AuthorizationError
from sessions.mcp.oauth import flows
from sessions.mcp.oauth.callback import code_of
from sessions.mcp.oauth.challenges import Demand
from sessions.mcp.oauth.grant import Grant, Pending, Registration
from sessions.mcp.oauth.registration import application_type, metadata_document
from sessions.mcp.oauth.settings import AuthorizationSettings
from tests.sessions.mcp.oauth.walking import Signer, documents, walk

SERVER, ISSUER = "https://mcp.example/mcp", "https://as.example"
SETTINGS = AuthorizationSettings(SERVER, redirect_uri="https://hub.example/back", client_name="hub")
PLAIN = Demand()
MADE = flows.FlowSecrets("s" * 43, "v" * 43, 1000.0)
RESOURCE_AT = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
SERVER_AT = "https://as.example/.well-known/oauth-authorization-server"
METADATA = {
    "issuer": ISSUER,
    "authorization_endpoint": "https://as.example/authorize?tenant=7",
    "token_endpoint": "https://as.example/token",
    "registration_endpoint": "https://as.example/register",
    "code_challenge_methods_supported": ["plain", "S256"],
}


def world(registered: Any = None, issuers: tuple[str, ...] = (ISSUER,), **metadata: Any) -> dict[str, Any]:
    return {
        RESOURCE_AT: {"resource": SERVER, "authorization_servers": issuers, "scopes_supported": ["read", "list"]},
        SERVER_AT: {key: value for key, value in (METADATA | metadata).items() if value is not None},
        "https://as.example/register": {"client_id": "dyn"} if registered is None else registered,
    }


def begun(
    found: dict[str, Any],
    settings: AuthorizationSettings = SETTINGS,
    demand: Demand = PLAIN,
    known: Grant | None = None,
) -> tuple[Pending, list[Any]]:
    return walk(flows.sign_in(settings, demand, known, Signer(), MADE), documents(found))


def query(pending: Pending) -> dict[str, str]:
    pairs = parse_qsl(urlsplit(pending.url).query, keep_blank_values=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


# -- the address


def test_the_browser_carries_everything_that_binds_the_answer_to_this_sign_in() -> None:
    pending, _ = begun(world())
    challenge = base64.urlsafe_b64encode(hashlib.sha256(b"v" * 43).digest()).rstrip(b"=").decode()
    assert pending.url.startswith("https://as.example/authorize?tenant=7&")
    assert query(pending) == {
        "tenant": "7",
        "response_type": "code",
        "client_id": "dyn",
        "redirect_uri": "https://hub.example/back",
        "state": "s" * 43,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": SERVER,
        "scope": "read list",
    }


@pytest.mark.parametrize("methods", [None, [], ["plain"], "S256"])
def test_without_s256_nothing_is_registered_and_no_one_is_sent_anywhere(methods: Any) -> None:
    with pytest.raises(AuthorizationError, match="does not advertise support for PKCE"):
        begun(world(registered=500, code_challenge_methods_supported=methods))


def test_an_operator_may_vouch_for_pkce_and_it_is_used_then_too() -> None:
    settings = replace(SETTINGS, pkce_vouched=True)
    assert query(begun(world(code_challenge_methods_supported=None), settings)[0])["code_challenge_method"] == "S256"


def test_a_server_without_a_page_to_sign_in_is_said_to_have_none() -> None:
    with pytest.raises(AuthorizationError, match="no sign-in page"):
        begun(world(authorization_endpoint=None))


# -- scopes


def test_the_challenge_is_asked_for_and_nothing_else() -> None:
    assert query(begun(world(), demand=Demand(scopes=("write",)))[0])["scope"] == "write"


def test_a_server_that_names_no_scopes_is_asked_for_none() -> None:
    found = world()
    del found[RESOURCE_AT]["scopes_supported"]
    assert "scope" not in query(begun(found)[0])


def test_what_a_sign_in_asked_for_that_never_succeeded_is_not_asked_for_again() -> None:
    first, _ = begun(world(), demand=Demand(scopes=("refused",)))
    assert query(first)["scope"] == "refused"
    again, _ = begun(world(), demand=Demand(scopes=("write",)), known=first.grant)
    assert query(again)["scope"] == "write"


def test_what_was_granted_before_is_kept_by_a_step_up_at_the_same_server_only() -> None:
    known = Grant(ISSUER, scopes_requested=("read",), scopes_granted=("read", "extra"))
    assert query(begun(world(), demand=Demand(scopes=("write",)), known=known)[0])["scope"] == "read extra write"
    foreign = replace(known, issuer="https://old.example")
    assert query(begun(world(), demand=Demand(scopes=("write",)), known=foreign)[0])["scope"] == "write"


def test_offline_access_is_asked_for_where_the_authorization_server_lists_it() -> None:
    listed = query(begun(world(scopes_supported=["offline_access", "other"]))[0])
    assert (listed["scope"], listed["prompt"]) == ("read list offline_access", "consent")
    unlisted = query(begun(world(), demand=Demand(scopes=("read", "offline_access")))[0])
    assert unlisted["scope"] == "read"
    assert "prompt" not in unlisted


# -- client identity


def sent_to_register(asked: list[Any]) -> dict[str, Any]:
    return next(json.loads(one.body) for one in asked if one.url == "https://as.example/register")


def test_a_new_client_says_what_it_is() -> None:
    pending, asked = begun(world(token_endpoint_auth_methods_supported=["none", "client_secret_post"]))
    assert sent_to_register(asked) == {
        "client_name": "hub",
        "redirect_uris": ["https://hub.example/back"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": "web",
        "token_endpoint_auth_method": "client_secret_post",
        "scope": "read list",
    }
    assert pending.grant.registration == Registration(
        ISSUER, "dyn", "dynamic", endpoint_auth="none", redirect_uri=SETTINGS.redirect_uri
    )


@pytest.mark.parametrize(
    ("redirect", "kind"),
    [("https://hub.example/b", "web"), ("http://localhost:8000/b", "native"), ("https://127.0.0.1/b", "native"), ("app:/b", "native")],
)  # fmt: skip
def test_the_kind_of_application_follows_from_where_the_browser_comes_back(redirect: str, kind: str) -> None:
    assert application_type(redirect) == kind


def test_what_the_server_made_of_us_decides_how_we_prove_it() -> None:
    given = {"client_id": "dyn", "client_secret": "hidden", "token_endpoint_auth_method": "client_secret_post"}
    registration = begun(world(given))[0].grant.registration
    assert registration is not None
    assert (registration.endpoint_auth, registration.secret) == ("client_secret_post", "hidden")
    assert "hidden" not in repr(registration)


@pytest.mark.parametrize("wrong", [{"client_id": "a\ud800"}, {"client_id": "a\0"}, {"client_secret": "s\ud800"}])
def test_a_client_that_no_request_could_name_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(AuthorizationError, match="cannot be sent"):
        begun(world({"client_id": "dyn"} | wrong))


def test_a_registration_is_used_again_and_never_at_another_issuer() -> None:
    known = Grant(ISSUER, Registration(ISSUER, "kept", "dynamic", redirect_uri=SETTINGS.redirect_uri))
    pending, asked = begun(world(registered=500), known=known)
    assert query(pending)["client_id"] == "kept"
    assert len(asked) == 2
    old = Grant("https://old.example", replace(known.registration, issuer="https://old.example"))  # type: ignore[type-var]  # it is registered
    assert query(begun(world(), known=old)[0])["client_id"] == "dyn"


def kept(*scopes: str) -> Grant:
    return Grant(
        ISSUER, Registration(ISSUER, "kept", "dynamic", redirect_uri=SETTINGS.redirect_uri, scopes=tuple(scopes))
    )


@pytest.mark.parametrize(
    ("said", "allowed"),
    [("read list", ("read", "list")), ("other", ("other", "read", "list")), (None, ())],
)
def test_what_a_client_may_request_is_kept_where_the_server_keeps_it(said: str | None, allowed: tuple[str]) -> None:
    registration = begun(world({"client_id": "dyn"} | ({"scope": said} if said else {})))[0].grant.registration
    assert registration is not None
    assert registration.scopes == allowed


@pytest.mark.parametrize(("known", "used"), [(kept("read", "write"), "kept"), (kept(), "kept"), (kept("read"), "dyn")])
def test_a_registration_for_fewer_scopes_is_not_used_for_more(known: Grant, used: str) -> None:
    assert query(begun(world(), demand=Demand(scopes=("read", "write")), known=known)[0])["client_id"] == used


def test_a_server_that_refuses_clients_with_scopes_gets_one_without() -> None:
    found = documents(world())

    def answer(request: Any) -> Any:
        response = found(request)
        if request.url.endswith("/register") and "scope" in json.loads(request.body):
            return replace(response, status=400, body=b'{"error":"invalid_client_metadata"}')
        return response

    pending, asked = walk(flows.sign_in(SETTINGS, PLAIN, None, Signer(), MADE), answer)
    assert [one.url for one in asked].count("https://as.example/register") == 2
    assert (query(pending)["client_id"], query(pending)["scope"]) == ("dyn", "read list")


def test_our_own_document_goes_before_a_registration_where_the_server_takes_it() -> None:
    settings = replace(SETTINGS, metadata_document="https://hub.example/client.json")
    pending, asked = begun(world(client_id_metadata_document_supported=True), settings)
    assert query(pending)["client_id"] == "https://hub.example/client.json"
    assert [one.verb for one in asked] == ["GET", "GET"]
    assert query(begun(world(), settings)[0])["client_id"] == "dyn"
    document = metadata_document("https://hub.example/client.json", "hub", SETTINGS.redirect_uri)
    assert document["client_id"] == "https://hub.example/client.json"
    assert document["redirect_uris"] == [SETTINGS.redirect_uri]


@pytest.mark.parametrize(("also", "used"), [({}, "dyn"), ({"registration_endpoint": None}, "the document")])
def test_a_document_that_the_server_cannot_fetch_is_used_only_where_nothing_else_is_offered(
    also: dict[str, None], used: str
) -> None:
    settings = replace(SETTINGS, metadata_document="https://hub.lan/client.json", document_last=True)
    pending, _ = begun(world(client_id_metadata_document_supported=True, **also), settings)
    assert query(pending)["client_id"] == (settings.metadata_document if used == "the document" else used)


def test_a_client_id_that_was_entered_is_never_shown_to_another_issuer() -> None:
    settings = replace(SETTINGS, client_id="mine", client_secret="secret", client_issuer=ISSUER)
    pending, asked = begun(world(registered=500), settings)
    assert query(pending)["client_id"] == "mine"
    assert len(asked) == 2
    with pytest.raises(AuthorizationError, match="was entered for https://as"):
        begun({**world(issuers=("https://new.example",)), **moved("https://new.example")}, settings)
    unbound = replace(settings, client_issuer="")
    with pytest.raises(AuthorizationError, match="was entered for https://as"):
        begun({**world(issuers=("https://new.example",)), **moved("https://new.example")}, unbound, known=pending.grant)


def moved(issuer: str) -> dict[str, Any]:
    there = {key: value.replace(ISSUER, issuer) if isinstance(value, str) else value for key, value in METADATA.items()}
    return {f"{issuer}/.well-known/oauth-authorization-server": there}


def test_without_any_way_to_register_a_person_is_told_to_do_it() -> None:
    with pytest.raises(AuthorizationError, match="Register a client there manually"):
        begun(world(registration_endpoint=None))


def test_a_refused_registration_says_why_in_the_words_of_the_server_without_its_markup() -> None:
    found = documents(world())

    def answer(request: Any) -> Any:
        response = found(request)
        if request.url.endswith("/register"):
            body = {"error": "invalid_redirect_uri", "error_description": "no\x1b[31m such\nthing " + "x" * 1000}
            return replace(response, status=400, body=json.dumps(body).encode())
        return response

    with pytest.raises(AuthorizationError, match=r"invalid_redirect_uri \(no\[31m such thing x+\)") as refused:
        walk(flows.sign_in(SETTINGS, Demand(), None, Signer(), MADE), answer)
    assert len(refused.value.detail) < 500


def test_of_several_authorization_servers_the_chosen_one_or_the_known_one_is_taken() -> None:
    found = world(issuers=("https://first.example", ISSUER))
    assert begun(found, known=Grant(ISSUER))[0].issuer == ISSUER
    assert begun(found, replace(SETTINGS, issuer=ISSUER))[0].issuer == ISSUER
    with pytest.raises(AuthorizationError, match="does not name"):
        begun(found, replace(SETTINGS, issuer="https://gone.example"))


# -- tokens bound to a key (RFC 9449)


@pytest.mark.parametrize(
    ("scheme", "of_server", "bound"),
    [
        ("bearer", {}, False),
        ("", {}, False),
        ("dpop", {}, True),
        ("bearer", {"dpop_bound_access_tokens_required": True}, True),
        ("bearer", {"dpop_signing_alg_values_supported": ["RS256", "ES256"]}, True),
        ("bearer", {"dpop_signing_alg_values_supported": ["RS256"]}, False),
    ],
)
def test_tokens_are_bound_to_a_key_if_the_server_asks_for_it_whatever_the_authorization_server_supports(
    scheme: str, of_server: dict[str, Any], bound: bool
) -> None:
    found = world(dpop_signing_alg_values_supported=["ES256"])
    found[RESOURCE_AT] |= of_server
    pending, _ = begun(found, demand=Demand(scheme))
    assert bool(pending.grant.dpop_key) is bound


@pytest.mark.parametrize(("scheme", "bound"), [("", True), ("dpop", True), ("bearer", False)])
def test_a_server_that_refuses_a_bound_token_in_favour_of_a_bearer_token_gets_one(scheme: str, bound: bool) -> None:
    known = Grant(ISSUER, access_token="t", token_type="DPoP", dpop_key="key")
    assert bool(begun(world(), demand=Demand(scheme), known=known)[0].grant.dpop_key) is bound


# -- the redirect back


def back(**parameters: str) -> dict[str, str]:
    return {"state": "s" * 43, "code": "c"} | parameters


@pytest.mark.parametrize(
    ("promised", "iss", "good"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (False, ISSUER, True),
        (False, None, True),
        (True, "https://evil.example", False),
        (False, "https://evil.example", False),
        (False, f"{ISSUER}/", False),
        (False, "https://AS.example", False),
        (False, f"{ISSUER}:443", False),
        (False, "", False),
    ],
)
def test_the_issuer_of_the_answer_is_compared_byte_for_byte(promised: bool, iss: str | None, good: bool) -> None:
    pending = begun(world(authorization_response_iss_parameter_supported=promised))[0]
    parameters = back() if iss is None else back(iss=iss)
    if good:
        assert code_of(pending, parameters) == "c"
        return
    with pytest.raises(AuthorizationError, match="does not come from"):
        code_of(pending, parameters)


def test_a_forged_error_is_not_repeated_when_the_issuer_is_wrong() -> None:
    pending = begun(world())[0]
    with pytest.raises(AuthorizationError) as refused:
        code_of(pending, back(iss="https://evil.example", error="x", error_description="call 555-1234"))
    assert "555" not in refused.value.detail
    assert "evil" not in refused.value.detail


def test_an_error_of_the_right_server_is_shown() -> None:
    with pytest.raises(AuthorizationError, match=r"access_denied \(not you\)"):
        code_of(begun(world())[0], back(iss=ISSUER, error="access_denied", error_description="not you"))


@pytest.mark.parametrize("parameters", [{}, {"state": "other", "code": "c"}, {"state": "", "code": "c"}, {"code": "c"}])
def test_an_answer_to_another_sign_in_is_not_used(parameters: dict[str, str]) -> None:
    with pytest.raises(AuthorizationError, match="does not match a sign-in started here"):
        code_of(begun(world())[0], parameters)


def test_an_answer_without_a_code_is_said_to_have_none() -> None:
    with pytest.raises(AuthorizationError, match="neither a code nor an error"):
        code_of(begun(world())[0], {"state": "s" * 43})


def test_a_sign_in_survives_its_rest_as_json() -> None:
    pending = begun(world())[0]
    assert Pending.from_data(json.loads(json.dumps(pending.to_data()))) == pending
    for secret in ("s" * 43, "v" * 43):
        assert secret not in repr(pending)


def test_no_one_is_sent_to_this_machine_by_a_server_elsewhere() -> None:
    found = world(authorization_endpoint="http://127.0.0.1:8080/authorize")
    with pytest.raises(AuthorizationError, match="is on this machine and the server is not"):
        begun(found)
    local = "http://localhost:9000"
    metadata = METADATA | {"issuer": local, "authorization_endpoint": f"{local}/authorize"}
    found = world(issuers=(local,)) | {f"{local}/.well-known/oauth-authorization-server": metadata}
    pending, _ = begun(found, replace(SETTINGS, issuer=local))
    assert pending.url.startswith(f"{local}/authorize?")
