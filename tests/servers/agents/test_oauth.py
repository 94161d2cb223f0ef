"""OAuth for agents: what a client gets, for whom, for which endpoint, and how often."""

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from servers import access, limits
from servers.agents import tokens
from servers.agents.addresses import address_of, slug_of
from servers.agents.oauth import authorization_server, clients, grants, metadata, registration
from servers.agents.oauth.clients import BadClient
from servers.agents.tokens import Unknown
from servers.audit.record import Actor
from servers.enums import AgentScope, AuditAction, DocumentState, OAuthClientKind
from servers.models import AgentToken, AuditEvent, Bundle, Instance, OAuthClient, OAuthCode, OAuthToken, Server
from tests.servers.conftest import person
from tests.sessions.host.make import make_session, make_worker

pytestmark = pytest.mark.django_db(transaction=True)
BACK = "http://127.0.0.1:7777/callback"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
DOCUMENT = "https://program.example/client.json"


@pytest.fixture
def ann(db: None) -> Any:
    return person("ann", "view_server", "call_tool")


@pytest.fixture
def files(db: None) -> Server:
    server: Server = make_session("files").server
    return server


@pytest.fixture
def program(db: None) -> OAuthClient:
    return OAuthClient.objects.create(
        kind=OAuthClientKind.REGISTERED, client_id="program", name="Program", redirect_uris=[BACK]
    )


@pytest.fixture
def signed_in(ann: Any) -> Client:
    client = Client()
    client.force_login(ann)
    return client


def query(client: str = "program", **more: str | None) -> str:
    found: dict[str, str | None] = {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": BACK,
        "state": "s&1",
        "scope": "mcp:list mcp:call offline_access",
        "resource": address_of("files"),
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    return "/oauth/authorize?" + urlencode({name: value for name, value in (found | more).items() if value is not None})


def returned(response: Any) -> dict[str, str]:
    """The parameters with which the signed_in returns to the client."""
    assert response.status_code == 302, response.content.decode()[-2_000:]
    return {name: values[0] for name, values in parse_qs(urlsplit(response["Location"]).query).items()}


def allow(signed_in: Client, url: str = "", **more: Any) -> str:
    posted = {"scopes": ["mcp:list", "mcp:call"], "days": "7"} | more
    return returned(signed_in.post(url or query(), posted))["code"]


def exchange(code: str, client: str = "program", **more: str | None) -> Any:
    found: dict[str, str | None] = {
        "grant_type": "authorization_code",
        "code": code,
        "client_id": client,
        "redirect_uri": BACK,
        "code_verifier": VERIFIER,
        "resource": address_of("files"),
    }
    return Client().post("/oauth/token", {name: value for name, value in (found | more).items() if value is not None})


def renew(refresh: str, client: str = "program", **more: str) -> Any:
    return Client().post(
        "/oauth/token", {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": client} | more
    )


def why(text: str) -> str:
    with pytest.raises(Unknown) as unknown:
        tokens.principal_of(text, "")
    return unknown.value.why


# --- the way there and back ---------------------------------------------------------------------------------------------
def test_a_person_allows_a_program_one_endpoint_and_the_program_gets_tokens(
    signed_in: Client, files: Server, program: OAuthClient, ann: Any
) -> None:
    page = signed_in.get(query())
    assert page.status_code == 200
    for words in (b"Program", b"Name not verified", b"127.0.0.1:7777", b"files", b"any program on it"):
        assert words in page.content
    back = returned(signed_in.post(query(), {"scopes": ["mcp:list", "mcp:call"], "days": "7"}))
    assert (back["state"], back["iss"]) == ("s&1", settings.PUBLIC_URL)
    answer = exchange(back["code"])
    assert answer.status_code == 200, answer.content
    assert answer["Cache-Control"] == "no-store"
    found = answer.json()
    assert (found["token_type"], found["expires_in"], found["scope"]) == ("Bearer", 3600, "mcp:list mcp:call")
    principal = tokens.principal_of(found["access_token"], "")
    assert (principal.user, principal.reaches(files.pk)) == (ann, True)
    assert not principal.has("mcp:read")
    assert principal.token.resource == address_of("files")
    stored = str([*OAuthToken.objects.values(), *OAuthCode.objects.values(), *AgentToken.objects.values()])
    recorded = str(list(AuditEvent.objects.values_list("body", flat=True)))
    for secret in (found["access_token"], found["refresh_token"], back["code"]):
        assert secret not in stored
        assert secret not in recorded
    event = json.loads(AuditEvent.objects.get(action=AuditAction.AGENT_TOKEN_ISSUE).body)
    assert (event["details"]["client"], event["details"]["redirect_uri"]) == ("program", BACK)
    assert b"Program" in signed_in.get("/agents/").content


def test_a_person_who_denies_sends_the_program_back_without_a_code(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    back = returned(signed_in.post(query(), {"deny": "yes", "scopes": ["mcp:list"], "days": "7"}))
    assert (back["error"], back["state"], back["iss"]) == ("access_denied", "s&1", settings.PUBLIC_URL)
    assert not AgentToken.objects.exists()
    assert AuditEvent.objects.filter(action=AuditAction.AGENT_TOKEN_DECLINE).exists()


def test_consent_needs_a_sign_in_and_comes_back_to_the_same_request(files: Server, program: OAuthClient) -> None:
    away = Client().get(query())
    assert away.status_code == 302
    assert parse_qs(urlsplit(away["Location"]).query)["next"] == [query()]


def test_the_form_of_consent_may_lead_to_wherever_the_callback_redirects(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    for page in (signed_in.get(query()), signed_in.post(query(), {"days": "7"})):
        policy = page.headers["Content-Security-Policy"]
        assert "form-action" not in policy
        for directive in ("default-src 'none'", "script-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"):
            assert directive in policy
    assert "form-action 'self'" in signed_in.get(query("nobody")).headers["Content-Security-Policy"]


def test_a_client_that_opened_consent_in_a_window_is_not_cut_off_from_it(
    ann: Any, files: Server, program: OAuthClient
) -> None:
    browser = Client()
    ann.set_password("correct horse battery")
    ann.save()
    away = browser.get(query())
    sign_in = browser.get(away["Location"])
    form = {"login": "ann", "password": "correct horse battery", "next": query()}
    back = browser.post("/accounts/login/", form)
    assert back["Location"] == query()
    page = browser.get(query())
    allowed = browser.post(query(), {"scopes": ["mcp:list"], "days": "7"})
    steps = [away, sign_in, back, page, allowed]
    assert [step.status_code for step in steps] == [302, 200, 302, 200, 302]
    assert {step.headers["Cross-Origin-Opener-Policy"] for step in steps} == {"unsafe-none"}
    assert {step.headers["X-Frame-Options"] for step in steps} == {"DENY"}
    assert browser.get("/agents/").headers["Cross-Origin-Opener-Policy"] == "same-origin"


def test_a_form_of_another_site_allows_nothing(ann: Any, files: Server, program: OAuthClient) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(ann)
    assert strict.post(query(), {"scopes": ["mcp:list"], "days": "7"}).status_code == 403
    assert not AgentToken.objects.exists()


@pytest.mark.parametrize("kind", ["server", "bundle"])
def test_a_person_is_asked_again_if_another_endpoint_got_the_short_name(
    signed_in: Client, files: Server, program: OAuthClient, kind: str
) -> None:
    shown = uid_of(signed_in.get(query()))
    assert shown == str(files.uid)
    posted = {"scopes": ["mcp:list"], "days": "7"}
    Server.objects.filter(pk=files.pk).update(slug="files-old")
    if kind == "server":
        other: Any = make_session("files").server
    else:
        other = Bundle.objects.create(slug="files", name="Others")
        other.members.create(server=files, alias="files", position=0)
    asked = signed_in.post(query(), posted | {"uid": shown})
    assert asked.status_code == 409
    assert b"another one now has its short name. Nothing was allowed." in asked.content
    assert not AgentToken.objects.exists()
    signed_in.post(query(), posted | {"uid": shown, "deny": "yes"})
    assert AuditEvent.objects.get(action=AuditAction.AGENT_TOKEN_DECLINE).server_uid is None
    assert uid_of(asked) == str(other.uid)
    assert allow(signed_in, uid=uid_of(asked))


def uid_of(page: Any) -> str:
    return page.content.decode().partition('name="uid" value="')[2].partition('"')[0]


def test_a_program_that_names_no_endpoint_gets_the_one_that_the_person_chooses(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    url = query(resource=None)
    assert b"Choose a server" in signed_in.get(url).content
    assert signed_in.post(url, {"scopes": ["mcp:list"], "days": "7"}).status_code == 422
    found = exchange(allow(signed_in, url, endpoint=files.uid), resource=None).json()
    assert tokens.principal_of(found["access_token"], "").token.resource == address_of("files")


def test_a_server_that_got_the_short_name_of_the_chosen_one_is_not_given_to_the_program(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    url, chosen = query(resource=None), files.uid
    files.delete()
    make_session("files")
    assert signed_in.post(url, {"scopes": ["mcp:list"], "days": "7", "endpoint": chosen}).status_code == 422
    assert not AgentToken.objects.exists()


def test_a_program_that_names_no_endpoint_can_be_given_a_bundle_that_its_person_sees(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    url = query(resource=None)
    bundles = {}
    for slug, member, deleted_at in (("work", files, None), ("empty", None, None), ("gone", files, timezone.now())):
        bundles[slug] = bundle = Bundle.objects.create(slug=slug, name=slug.title(), deleted_at=deleted_at)
        if member is not None:
            bundle.members.create(server=member, alias="files", position=0)
    page = signed_in.get(url).content
    work = bundles["work"].uid
    assert f'<optgroup label="Bundles">\n<option value="{work}">Work</option>\n</optgroup>'.encode() in page
    for uid in (bundles["empty"].uid, bundles["gone"].uid, uuid4(), "work"):
        refused = signed_in.post(url, {"scopes": ["mcp:list"], "days": "7", "endpoint": uid})
        assert refused.status_code == 422
    found = exchange(allow(signed_in, url, endpoint=work), resource=None).json()
    principal = tokens.principal_of(found["access_token"], "")
    assert (principal.token.resource, principal.reaches(files.pk)) == (address_of("work"), True)


def test_a_grant_for_a_bundle_reaches_the_members_that_its_person_sees(
    signed_in: Client, files: Server, program: OAuthClient, ann: Any
) -> None:
    other, outside = make_session("other").server, make_session("outside").server
    bundle = Bundle.objects.create(slug="work", name="Work")
    for position, server in enumerate((files, other)):
        bundle.members.create(server=server, alias=server.slug, position=position)
    url = query(resource=address_of("work"))
    page = signed_in.get(url).content
    assert b"Work" in page
    assert b"other" in page
    found = exchange(allow(signed_in, url), resource=address_of("work")).json()
    principal = tokens.principal_of(found["access_token"], "")
    assert principal.token.resource == address_of("work")
    assert [principal.reaches(server.pk) for server in (files, other, outside)] == [True, True, False]
    bundle.deleted_at = timezone.now()
    bundle.save()
    assert signed_in.get(url).status_code == 403


def test_scopes_are_those_that_were_asked_for_and_left_ticked(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    more = {"scopes": ["mcp:list", "mcp:call:destructive"], "days": "7"}
    refused = signed_in.post(query(), more)
    assert refused.status_code == 422
    assert b'<a href="#id_scopes">Scopes: ' in refused.content
    assert refused.content.count(b'id="id_scopes"') == 1
    assert exchange(allow(signed_in, scopes=["mcp:list"])).json()["scope"] == "mcp:list"


def test_of_a_client_that_asks_for_everything_only_the_usual_scopes_are_ticked(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    page = signed_in.get(query(scope=" ".join(AgentScope))).context["form"]
    ticked = {choice.data["value"] for choice in page["scopes"] if choice.data["selected"]}
    assert ticked == set(metadata.DEFAULT_SCOPES)
    assert {choice.data["value"] for choice in page["scopes"]} == set(AgentScope)
    found = Client().get("/.well-known/oauth-protected-resource/mcp/files").json()
    assert found["scopes_supported"] == metadata.DEFAULT_SCOPES
    chosen = [AgentScope.CALL, AgentScope.DESTRUCTIVE]
    given = exchange(allow(signed_in, query(scope=" ".join(AgentScope)), scopes=chosen)).json()
    assert given["scope"] == "mcp:call mcp:call:destructive"


# --- requests that lead nowhere -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "more",
    [
        {"client_id": "nobody"},
        {"redirect_uri": "http://127.0.0.1:7777/other"},
        {"redirect_uri": "https://evil.example/callback"},
        {"redirect_uri": "http://ann@127.0.0.1:7777/callback"},
        {"redirect_uri": "http://127.0.0.1:1/callback#x"},
        {"redirect_uri": "http://127.0.0.1;script-src *:1/callback"},
        {"redirect_uri": "http://localhost:7777/callback"},
    ],
)
def test_no_one_is_sent_to_an_address_that_the_program_did_not_register(
    signed_in: Client, files: Server, program: OAuthClient, more: dict[str, str]
) -> None:
    for response in (
        signed_in.get(query(**more)),
        signed_in.post(query(**more), {"scopes": ["mcp:list"], "days": "7"}),
    ):
        assert response.status_code == 400
        assert "Location" not in response
    assert not AgentToken.objects.exists()


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "x" * 42}, "invalid_request"),
        ({"code_challenge": "x" * 129}, "invalid_request"),
        ({"code_challenge": "x" * 42 + " "}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"resource": "https://elsewhere.example/mcp/files"}, "invalid_target"),
        ({"resource": f"{settings.PUBLIC_URL}/"}, "invalid_target"),
    ],
)
def test_a_request_that_is_not_allowed_returns_with_its_error(
    signed_in: Client, files: Server, program: OAuthClient, more: dict[str, str | None], error: str
) -> None:
    back = returned(signed_in.post(query(**more), {"scopes": ["mcp:list"], "days": "7"}))
    assert (back["error"], back["iss"]) == (error, settings.PUBLIC_URL)
    assert not AgentToken.objects.exists()


@pytest.mark.parametrize(("kind", "sent"), [(OAuthClientKind.REGISTERED, False), (OAuthClientKind.ADDED, True)])
def test_an_error_leads_to_an_address_of_the_web_only_if_an_administrator_added_it(
    signed_in: Client, files: Server, kind: OAuthClientKind, sent: bool
) -> None:
    web = "https://program.example/callback"
    OAuthClient.objects.create(kind=kind, client_id="web", name="Web", redirect_uris=[web])
    response = signed_in.get(query("web", redirect_uri=web, response_type="token"))
    assert ("Location" in response) is sent
    if not sent:
        assert response.status_code == 400
        assert b"Return to program.example" in response.content


def test_a_server_that_the_person_cannot_see_is_not_offered(signed_in: Client, program: OAuthClient) -> None:
    for response in (signed_in.get(query()), signed_in.post(query(), {"scopes": ["mcp:list"], "days": "7"})):
        assert response.status_code == 403
        assert b"error=invalid_target" in response.content
    assert not AgentToken.objects.exists()


def test_a_person_who_may_not_call_allows_nothing(files: Server, program: OAuthClient) -> None:
    vera = Client()
    vera.force_login(person("vera", "view_server"))
    assert vera.post(query(), {"scopes": ["mcp:list"], "days": "7"}).status_code == 403
    assert not AgentToken.objects.exists()


# --- codes ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "more",
    [
        {"code_verifier": "w" * 64},
        {"code_verifier": None},
        {"redirect_uri": "http://127.0.0.1:7777/other"},
        {"resource": "http://127.0.0.1:8000/mcp/other"},
        {"client_id": "other"},
    ],
)
def test_a_code_is_worth_nothing_to_another(
    signed_in: Client, files: Server, program: OAuthClient, more: dict[str, str | None]
) -> None:
    OAuthClient.objects.create(kind=OAuthClientKind.REGISTERED, client_id="other", redirect_uris=[BACK])
    code = allow(signed_in)
    refused = exchange(code, **more)
    assert refused.status_code in (400, 401)
    assert exchange(code).status_code == 400  # a try uses it up
    assert not OAuthToken.objects.exists()


def test_a_code_expires_and_so_does_its_grant(signed_in: Client, files: Server, program: OAuthClient) -> None:
    code = allow(signed_in)
    OAuthCode.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert exchange(code).status_code == 400
    AgentToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert AgentToken.objects.get().state == "expired"
    OAuthCode.objects.update(expires_at=timezone.now() - timedelta(hours=2))
    grants.forget_expired()
    assert not AgentToken.objects.exists()


def test_the_second_use_of_a_code_ends_what_the_first_one_got(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    code = allow(signed_in)
    access_token = exchange(code).json()["access_token"]
    assert exchange(code).json()["error"] == "invalid_grant"
    assert why(access_token) == "revoked"
    event = AuditEvent.objects.get(action=AuditAction.AGENT_TOKEN_REVOKE)
    assert "used twice" in json.loads(event.body)["details"]["why"]


def at_once(work: Callable[[], Any], times: int = 6) -> list[Any]:
    start, found = threading.Barrier(times), []

    def one() -> None:
        start.wait()
        try:
            found.append(work())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=one) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_of_many_uses_of_a_code_at_once_none_leaves_a_token_that_counts(
    request: pytest.FixtureRequest, database: str
) -> None:
    if database == "postgres":
        request.getfixturevalue("on_postgres")
        connection.ensure_connection()
    signed_in = Client()
    signed_in.force_login(person("bea", "view_server", "call_tool"))
    make_session("files")
    OAuthClient.objects.create(kind=OAuthClientKind.REGISTERED, client_id="program", redirect_uris=[BACK])
    code = allow(signed_in)
    answers = at_once(lambda: exchange(code))
    assert [answer.status_code for answer in answers].count(200) <= 1
    for answer in answers:
        if answer.status_code == 200:
            assert why(answer.json()["access_token"]) == "revoked"


# --- refreshing and revoking -------------------------------------------------------------------------------------------------
def test_a_refresh_token_gives_a_new_pair_once(signed_in: Client, files: Server, program: OAuthClient) -> None:
    first = exchange(allow(signed_in)).json()
    second = renew(first["refresh_token"], scope="mcp:list mcp:call mcp:read").json()
    assert second["scope"] == "mcp:list mcp:call"
    assert tokens.principal_of(second["access_token"], "")
    OAuthToken.objects.filter(replaced_at__isnull=False).update(replaced_at=timezone.now() - timedelta(minutes=1))
    assert renew(first["refresh_token"]).json()["error"] == "invalid_grant"
    for text in (first["access_token"], second["access_token"]):
        assert why(text) == "revoked"
    assert renew(second["refresh_token"]).status_code == 400


def test_an_answer_that_got_lost_can_be_fetched_again_for_a_moment(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    first = exchange(allow(signed_in)).json()
    renew(first["refresh_token"])
    again = renew(first["refresh_token"])
    assert again.status_code == 200
    assert tokens.principal_of(again.json()["access_token"], "")


def test_a_refresh_token_is_worth_nothing_to_another_or_as_an_access_token(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    OAuthClient.objects.create(kind=OAuthClientKind.REGISTERED, client_id="other", redirect_uris=[BACK])
    found = exchange(allow(signed_in)).json()
    assert renew(found["refresh_token"], client="other").json()["error"] == "invalid_grant"
    assert renew(found["access_token"]).json()["error"] == "invalid_grant"
    assert why(found["refresh_token"]) == "no such token"


def test_a_grant_is_for_its_own_endpoint_and_asking_for_another_one_costs_no_refresh_token(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    elsewhere = address_of("other")
    assert exchange(allow(signed_in), resource=elsewhere).json()["error"] == "invalid_target"
    first = exchange(allow(signed_in)).json()["refresh_token"]
    given = {"grant_type": "refresh_token", "client_id": "program"}
    for wrong in (elsewhere, "nothing", [address_of("files"), elsewhere], [address_of("files")] * 2):
        answer = Client().post("/oauth/token", {**given, "refresh_token": first, "resource": wrong})
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_target")
    assert not OAuthToken.objects.exclude(replaced_at=None).exists()
    assert "access_token" in renew(first, resource=address_of("files")).json()
    assert renew("mcr_unknown", resource=elsewhere).json()["error"] == "invalid_grant"


def test_an_access_token_ends_after_an_hour_and_with_its_grant(
    signed_in: Client, files: Server, program: OAuthClient, ann: Any
) -> None:
    found = exchange(allow(signed_in)).json()
    OAuthToken.objects.filter(refresh=False).update(expires_at=timezone.now())
    assert why(found["access_token"]) == "the access token is expired"
    fresh = renew(found["refresh_token"]).json()
    assert tokens.revoke(Actor.of_user(ann), ann, AgentToken.objects.get())
    assert why(fresh["access_token"]) == "revoked"
    assert renew(fresh["refresh_token"]).status_code == 400


def test_an_access_token_says_when_it_ends_with_its_grant_before_the_hour_is_over(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    found = exchange(allow(signed_in)).json()
    AgentToken.objects.update(expires_at=timezone.now() + timedelta(minutes=5))
    assert 290 <= renew(found["refresh_token"]).json()["expires_in"] <= 300


def test_a_program_can_give_its_grant_back(signed_in: Client, files: Server, program: OAuthClient) -> None:
    found = exchange(allow(signed_in)).json()
    stranger = Client().post("/oauth/revoke", {"token": found["refresh_token"], "client_id": "nobody"})
    assert stranger.status_code == 401
    assert tokens.principal_of(found["access_token"], "")
    assert Client().post("/oauth/revoke", {"token": found["refresh_token"], "client_id": "program"}).status_code == 200
    assert why(found["access_token"]) == "revoked"


def test_a_disabled_person_takes_the_grants_along(
    signed_in: Client, files: Server, program: OAuthClient, ann: Any
) -> None:
    found = exchange(allow(signed_in)).json()
    ann.is_active = False
    ann.save()
    assert why(found["access_token"]) == "the account is disabled"
    assert renew(found["refresh_token"]).status_code == 400


# --- clients --------------------------------------------------------------------------------------------------------------
def test_a_client_with_a_secret_must_send_it(signed_in: Client, files: Server, admin: Any) -> None:
    client, secret = clients.add(Actor.of_user(admin), admin, "Cursor", [BACK], confidential=True)
    assert secret not in str(list(OAuthClient.objects.values()))
    for wrong in ({}, {"client_secret": ""}, {"client_secret": secret + "x"}):
        refused = exchange(allow(signed_in, query(client.client_id)), client.client_id, **wrong)
        assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client")
    assert (
        exchange(allow(signed_in, query(client.client_id)), client.client_id, client_secret=secret).status_code == 200
    )
    basic = base64.b64encode(f"{client.client_id}:{secret}".encode()).decode()
    form = {
        "grant_type": "authorization_code",
        "code": allow(signed_in, query(client.client_id)),
        "redirect_uri": BACK,
        "code_verifier": VERIFIER,
    }
    assert Client().post("/oauth/token", form, HTTP_AUTHORIZATION=f"Basic {basic}").status_code == 200


def test_a_client_without_a_secret_may_name_itself_in_the_header(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    """As HTTP libraries do it where they are given an empty password."""
    header = {"HTTP_AUTHORIZATION": f"Basic {base64.b64encode(b'program:').decode()}"}
    form = {"grant_type": "authorization_code", "code": allow(signed_in), "redirect_uri": BACK}
    found = Client().post("/oauth/token", form | {"code_verifier": VERIFIER}, **header)
    assert found.status_code == 200, found.content
    renewal = {"grant_type": "refresh_token", "refresh_token": found.json()["refresh_token"]}
    fresh = Client().post("/oauth/token", renewal, **header).json()
    assert Client().post("/oauth/revoke", {"token": fresh["refresh_token"]}, **header).status_code == 200
    assert why(fresh["access_token"]) == "revoked"


@pytest.mark.parametrize(
    ("registered", "asked", "fits"),
    [
        ("http://127.0.0.1/cb", "http://127.0.0.1:49152/cb", True),
        ("http://localhost:1/cb", "http://localhost:2/cb", True),
        ("http://[::1]/cb", "http://[::1]:8/cb", True),
        ("http://127.0.0.1/cb", "http://127.0.0.1/cb/", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1/cb?x=1", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1.evil.example/cb", False),
        ("https://a.example/cb", "https://a.example:8443/cb", False),
        ("https://a.example/cb", "https://A.example/cb", False),
        ("cursor://anysphere/cb", "cursor://anysphere/cb", True),
        ("cursor://anysphere/cb", "cursor://other/cb", False),
    ],
)
def test_a_redirect_uri_fits_exactly_except_for_a_loopback_port(registered: str, asked: str, fits: bool) -> None:
    client = OAuthClient(redirect_uris=[registered])
    assert clients.matches(client, asked) is fits


@pytest.mark.parametrize(
    "uri",
    [
        "http://a.example/cb",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "https://u:p@a.example/cb",
        "https://a.example/cb#part",
        "https://a.example;img-src/cb",
        "https://a.example/ cb",
        "https:///cb",
        "/cb",
        "",
        "https://[::1/cb",
        "https://ä.example/cb",
    ],
)
def test_redirect_uris_that_lead_astray_are_not_registered(uri: str) -> None:
    with pytest.raises(BadClient) as bad:
        clients.checked_redirects([uri])
    assert bad.value.error == "invalid_redirect_uri"


def test_programs_register_themselves_only_where_an_administrator_allows_it(admin: Any) -> None:
    sent = {"redirect_uris": [BACK], "client_name": "A\nclient", "token_endpoint_auth_method": "none"}

    def post(body: Any) -> Any:
        return Client().post("/oauth/register", json.dumps(body), content_type="application/json")

    assert post(sent).status_code == 404
    assert "registration_endpoint" not in Client().get("/.well-known/oauth-authorization-server").json()
    with pytest.raises(access.Denied):
        registration.switch(Actor.of_user(None), person("bob", "manage_users"), is_open=True)
    registration.switch(Actor.of_user(admin), admin, is_open=True)
    assert Client().get("/.well-known/oauth-authorization-server").json()["registration_endpoint"]
    made = post(sent)
    assert made.status_code == 201
    assert (made.json()["client_name"], "client_secret" in made.json()) == ("A client", False)
    assert post({"redirect_uris": [BACK]}).json()["client_secret"]
    assert (
        post(sent | {"client_name": "Half \ud800\0a pair"}).json()["client_name"]
        == "Half \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}a pair"
    )
    deep = Client().post("/oauth/register", "[" * 15_000, content_type="application/json")
    assert deep.json()["error"] == "invalid_client_metadata"
    for bad in ([], {}, {"redirect_uris": ["javascript:x"]}, sent | {"token_endpoint_auth_method": "private_key_jwt"}):
        assert post(bad).status_code == 400
    assert AuditEvent.objects.filter(action=AuditAction.OAUTH_CLIENT_REGISTER).count() == 3


def test_registrations_of_one_address_are_bounded_and_unused_ones_forgotten(db: None) -> None:
    Instance.objects.update_or_create(pk=1, defaults={"oauth_registration": True})

    def post(address: str = "198.51.100.9") -> Any:
        body = json.dumps({"redirect_uris": [BACK], "token_endpoint_auth_method": "none"})
        return Client().post("/oauth/register", body, content_type="application/json", REMOTE_ADDR=address)

    answers = [post() for _ in range(11)]
    assert [answer.status_code for answer in answers] == [201] * 10 + [429]
    assert limits.stated("oauth_registrations") in answers[-1].json()["error_description"]
    OAuthClient.objects.update(created_at=timezone.now() - timedelta(days=31))
    assert clients.forget_unused() == 10


@pytest.mark.parametrize("kind", [OAuthClientKind.REGISTERED, OAuthClientKind.DOCUMENT])
def test_clients_that_no_one_uses_are_forgotten_with_their_ended_grants(ann: Any, kind: OAuthClientKind) -> None:
    now = timezone.now()
    before, lately = now - timedelta(days=31), now - timedelta(days=29)

    def make(name: str, grant_ends: Any, *, used: Any = before, **more: Any) -> None:
        facts = {"kind": kind, "redirect_uris": [BACK], "created_at": before, "last_used_at": used} | more
        client = OAuthClient.objects.create(client_id=f"https://{name}.example/c", **facts)
        if grant_ends is not None:
            grant = {"user": ann, "client": client, "name": name, "public_id": name, "digest": name}
            AgentToken.objects.create(**grant, expires_at=grant_ends)

    make("ended", before)
    make("revoked", now + timedelta(days=1))
    AgentToken.objects.filter(name="revoked").update(revoked_at=before)
    make("nothing", None, used=None)
    make("live", now + timedelta(days=1))
    make("ended-lately", lately)
    make("used-lately", before, used=lately)
    make("made-lately", None, used=None, created_at=lately)
    make("blocked", before, blocked_at=now)
    make("added", before, kind=OAuthClientKind.ADDED)
    assert clients.forget_unused() == 3
    left = {urlsplit(client.client_id).netloc.removesuffix(".example") for client in OAuthClient.objects.all()}
    assert left == {"live", "ended-lately", "used-lately", "made-lately", "blocked", "added"}
    assert not AgentToken.objects.filter(name__in=["ended", "revoked"]).exists()


def test_a_metadata_document_is_read_by_a_worker_before_anyone_is_asked(
    signed_in: Client, files: Server, admin: Any
) -> None:
    url = query(DOCUMENT, redirect_uri=BACK)
    assert b"No worker is running" in signed_in.get(url).content
    make_worker()
    page = signed_in.get(url).content
    assert b"No worker is running" not in page
    assert b"Reading the client" in page
    row = OAuthClient.objects.get()
    assert (row.kind, row.document) == (OAuthClientKind.DOCUMENT, DocumentState.REQUESTED)
    taken = clients.take(row.uid)
    assert taken is not None
    assert clients.take(row.uid) is None
    assert b"Reading the client" in signed_in.get(url, headers={"HX-Request": "true"}).content
    clients.not_read(taken, "It was not found.")
    failed = signed_in.get(url)
    assert b"Administrators can see the reason" in failed.content
    assert b"It was not found." not in failed.content
    assert b"Try again" in failed.content
    boss = Client()
    boss.force_login(admin)
    assert b"It was not found." in boss.get(url).content
    clients.read(taken, json.dumps({"client_id": DOCUMENT, "client_name": "Real", "redirect_uris": [BACK]}).encode())
    assert signed_in.get(url).status_code == 200
    page = signed_in.get(url).content
    assert b"Real" in page
    assert b"program.example" in page
    assert b"not verified" not in page


def test_what_was_read_of_a_document_is_used_for_a_week_while_it_cannot_be_read_again(
    signed_in: Client, files: Server, ann: Any, admin: Any
) -> None:
    make_worker()
    url = query(DOCUMENT, redirect_uri=BACK)

    def pass_by(time: timedelta) -> None:
        row = OAuthClient.objects.get()
        OAuthClient.objects.update(document_at=row.document_at - time, document_read_at=row.document_read_at - time)

    row = clients.of_document(Actor.of_user(ann), ann, DOCUMENT)
    clients.read(row, json.dumps({"client_id": DOCUMENT, "client_name": "Real", "redirect_uris": [BACK]}).encode())
    pass_by(clients.FRESH + timedelta(seconds=1))
    assert returned(signed_in.post(url, {"scopes": ["mcp:list"], "days": "7"}))["code"], "a decision waits for nothing"
    assert b"Reading the client" in signed_in.get(url).content
    pass_by(clients.RETRIED + timedelta(seconds=1))
    assert b"Allow Real" in signed_in.get(url).content, "and nobody waits long for a worker"
    clients.not_read(row, "Its address answered with HTTP 403.")
    pass_by(clients.RETRIED + timedelta(seconds=1))
    assert b"Allow Real" in signed_in.get(url).content
    boss = Client()
    boss.force_login(admin)
    listed = boss.get("/oauth/clients/").content
    assert b"HTTP 403" in listed
    assert b"Last read" in listed
    pass_by(clients.FRESH)
    assert b"Reading the client" in signed_in.get(url).content
    clients.not_read(row, "Its address answered with HTTP 403.")
    OAuthClient.objects.update(document_read_at=timezone.now() - clients.KEPT)
    assert b"could not be read" in signed_in.get(url).content
    OAuthClient.objects.update(document_at=timezone.now() - timedelta(days=1))
    assert b"Reading the client" in signed_in.post(url, {"scopes": ["mcp:list"], "days": "7"}).content


def test_where_documents_are_switched_off_none_is_advertised_read_or_used(
    signed_in: Client, files: Server, ann: Any, admin: Any
) -> None:
    url = query(DOCUMENT, redirect_uri=BACK)
    row = clients.of_document(Actor.of_user(ann), ann, DOCUMENT)
    clients.read(row, json.dumps({"client_id": DOCUMENT, "redirect_uris": [BACK]}).encode())
    found = exchange(allow(signed_in, url), DOCUMENT).json()
    advertised = "/.well-known/oauth-authorization-server"
    assert Client().get(advertised).json()["client_id_metadata_document_supported"] is True
    assert signed_in.post("/oauth/clients/documents/", {"open": "no"}).status_code == 403
    boss = Client()
    boss.force_login(admin)
    assert b"no longer accepted" in boss.post("/oauth/clients/documents/", {"open": "no"}, follow=True).content
    assert "client_id_metadata_document_supported" not in Client().get(advertised).json()
    for answer in (signed_in.get(url), signed_in.post(url, {"scopes": ["mcp:list"], "days": "7"})):
        assert answer.status_code == 400
        assert b"does not currently accept client metadata documents" in answer.content
    assert signed_in.get(query("https://other.example/client.json")).status_code == 400
    assert OAuthClient.objects.count() == 1
    assert renew(found["refresh_token"], DOCUMENT).status_code == 200, "grants stay"
    assert AuditEvent.objects.filter(action=AuditAction.OAUTH_REGISTRATION_CHANGE).count() == 1
    boss.post("/oauth/clients/documents/", {"open": "yes"})
    assert b"Allow program.example" in signed_in.get(url).content


def test_who_may_not_call_tools_has_no_document_read(files: Server) -> None:
    vera = Client()
    vera.force_login(person("vera", "view_server"))
    assert vera.get(query(DOCUMENT)).status_code == 403
    assert not OAuthClient.objects.exists()


def test_documents_are_read_at_the_pace_of_connection_tests_and_each_request_is_an_event(signed_in: Client) -> None:
    most = limits.number("tries_per_minute")
    statuses = [signed_in.get(query(f"https://host{number}.example/a")).status_code for number in range(most + 1)]
    assert statuses == [200] * most + [429]
    assert (
        AuditEvent.objects.filter(action=AuditAction.OAUTH_CLIENT_READ).count() == most == OAuthClient.objects.count()
    )


def test_clients_whose_document_was_never_read_make_room_and_are_forgotten(
    ann: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MOST_CLIENTS", 2)
    actor = Actor.of_user(ann)
    kept = clients.of_document(actor, ann, DOCUMENT)
    clients.read(kept, json.dumps({"client_id": DOCUMENT, "redirect_uris": [BACK]}).encode())
    clients.of_document(actor, ann, "https://one.example/a")
    clients.of_document(actor, ann, "https://two.example/a")
    assert set(OAuthClient.objects.values_list("client_id", flat=True)) == {DOCUMENT, "https://two.example/a"}
    OAuthClient.objects.update(created_at=timezone.now() - timedelta(days=2))
    assert clients.forget_unused() == 1
    assert OAuthClient.objects.get().client_id == DOCUMENT


def test_clients_that_no_one_has_allowed_anything_make_room_though_their_document_was_read(
    ann: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MOST_CLIENTS", 2)
    actor = Actor.of_user(ann)
    for name in ("one", "two"):
        row = clients.of_document(actor, ann, f"https://{name}.example/a")
        clients.read(row, json.dumps({"client_id": row.client_id, "redirect_uris": [BACK]}).encode())
    known = {"user": ann, "client": OAuthClient.objects.earliest("pk"), "name": "x", "public_id": "x", "digest": "x"}
    AgentToken.objects.create(**known, expires_at=timezone.now())
    clients.of_document(actor, ann, DOCUMENT)
    assert set(OAuthClient.objects.values_list("client_id", flat=True)) == {DOCUMENT, "https://one.example/a"}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (b"{", "not JSON"),
        (b"[" * 15_000, "not JSON"),
        (b"[]", "its own address"),
        (json.dumps({"client_id": "https://other.example/x", "redirect_uris": [BACK]}).encode(), "its own address"),
        (json.dumps({"client_id": DOCUMENT}).encode(), "redirect_uris"),
        (json.dumps({"client_id": DOCUMENT, "redirect_uris": ["http://x.example/"]}).encode(), "https"),
        (json.dumps({"client_id": DOCUMENT, "redirect_uris": ["https://\ud800\0/"]}).encode(), "not a valid redirect"),
        (
            json.dumps(
                {"client_id": DOCUMENT, "redirect_uris": [BACK], "token_endpoint_auth_method": "client_secret_post"}
            ).encode(),
            "public clients only",
        ),
    ],
)
def test_a_document_that_does_not_fit_makes_no_client(db: None, document: bytes, says: str) -> None:
    ann = person("ann", "call_tool")
    row = clients.of_document(Actor.of_user(ann), ann, DOCUMENT)
    with pytest.raises(BadClient, match=says) as bad:
        clients.read(row, document)
    clients.not_read(row, str(bad.value))
    assert says in OAuthClient.objects.get().document_problem
    assert clients.usable(DOCUMENT) is None


def test_a_document_that_prefers_a_key_but_also_offers_to_be_public_is_read(ann: Any) -> None:
    """As that of ChatGPT."""
    row = clients.of_document(Actor.of_user(ann), ann, DOCUMENT)
    methods = {
        "token_endpoint_auth_method": "private_key_jwt",
        "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
    }
    clients.read(row, json.dumps({"client_id": DOCUMENT, "redirect_uris": [BACK], **methods}).encode())
    assert OAuthClient.objects.get().document == DocumentState.READ


@pytest.mark.parametrize(
    ("client_id", "is_one"),
    [
        ("https://a.example/client.json", True),
        ("https://a.example/x/", True),
        ("https://a.example", False),
        ("https://a.example/", False),
        ("http://a.example/client.json", False),
        ("https://a.example/x/../y", False),
        ("https://u@a.example/x", False),
        ("https://a.example/x#y", False),
        ("HTTPS://a.example/x", False),
        ("https://A.example/x", False),
        ("https://a.example/" + "x" * 500, False),
    ],
)
def test_only_a_plain_https_address_is_that_of_a_document(client_id: str, is_one: bool) -> None:
    assert clients.is_document_url(client_id) is is_one


def test_a_blocked_client_loses_its_grants_and_asks_no_one(
    signed_in: Client, files: Server, program: OAuthClient, admin: Any, ann: Any
) -> None:
    found = exchange(allow(signed_in)).json()
    with pytest.raises(access.Denied):
        clients.block(Actor.of_user(ann), ann, program)
    assert clients.block(Actor.of_user(admin), admin, program) == 1
    assert why(found["access_token"]) == "revoked"
    assert signed_in.get(query()).status_code == 400
    assert renew(found["refresh_token"]).status_code == 401
    clients.unblock(Actor.of_user(admin), admin, OAuthClient.objects.get())
    assert signed_in.get(query()).status_code == 200
    clients.delete(Actor.of_user(admin), admin, OAuthClient.objects.get())
    assert not AgentToken.objects.exists()


def test_blocking_asks_first_and_names_whose_grants_unblocking_does_not_bring_back(
    signed_in: Client, files: Server, program: OAuthClient, admin: Any
) -> None:
    exchange(allow(signed_in))
    administrator = Client()
    administrator.force_login(admin)
    address = f"/oauth/clients/{program.uid}/block/"
    assert f'href="{address}"' in administrator.get("/oauth/clients/").content.decode()
    asked = " ".join(administrator.get(address).content.decode().split())
    assert "1 grant will be revoked</b>: ann." in asked
    assert "Unblocking does not restore grants" in asked
    assert OAuthClient.objects.get().blocked_at is None
    assert signed_in.get(address).status_code == 403
    done: Any = administrator.post(address, follow=True)
    assert "1 grant was revoked." in done.content.decode()
    assert OAuthClient.objects.get().blocked_at is not None


def test_a_message_shows_the_hidden_characters_of_a_name(admin: Any, program: OAuthClient) -> None:
    OAuthClient.objects.update(name="Pro\u202egram")
    administrator = Client()
    administrator.force_login(admin)
    page = administrator.post(f"/oauth/clients/{program.uid}/block/", follow=True).content.decode()
    assert "Pro[U+202E]gram is blocked." in page
    assert "\u202e" not in page


def test_administrators_manage_clients_on_a_page(admin: Any, program: OAuthClient) -> None:
    signed_in = Client()
    signed_in.force_login(admin)
    assert b"Program" in signed_in.get("/oauth/clients/").content
    assert signed_in.post("/oauth/clients/add/", {"name": "X", "redirect_uris": "javascript:x"}).status_code == 422
    shown = signed_in.post("/oauth/clients/add/", {"name": "X", "redirect_uris": BACK, "confidential": "on"})
    client = shown.context["client"]
    assert shown.context["secret"].encode() in shown.content
    assert shown.context["secret"].encode() not in signed_in.get("/oauth/clients/").content
    signed_in.post(f"/oauth/clients/{client.uid}/block/")
    assert b"Blocked" in signed_in.get("/oauth/clients/").content
    assert b"cannot be undone" in signed_in.get(f"/oauth/clients/{client.uid}/delete/").content
    signed_in.post(f"/oauth/clients/{client.uid}/delete/")
    assert list(OAuthClient.objects.all()) == [program]


# --- discovery ---------------------------------------------------------------------------------------------------------------
def test_the_documents_lead_from_an_endpoint_to_the_token(files: Server) -> None:
    for slug in ("files", "no-such-server"):
        found = Client().get(f"/.well-known/oauth-protected-resource/mcp/{slug}").json()
        assert found["resource"] == address_of(slug)
        assert found["authorization_servers"] == [settings.PUBLIC_URL]
    server = Client().get("/.well-known/oauth-authorization-server").json()
    assert server["issuer"] == settings.PUBLIC_URL
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["authorization_endpoint"] == f"{settings.PUBLIC_URL}/oauth/authorize"


def test_a_path_of_a_stranger_does_not_end_a_value_of_the_challenge() -> None:
    challenge = metadata.challenge('x", scope="all\r\nSet-Cookie: a', "invalid_token")
    assert challenge.count('"') == 6
    assert "\r" not in challenge


@pytest.mark.parametrize(
    ("resource", "slug"),
    [
        (f"{settings.PUBLIC_URL}/mcp/files", "files"),
        (f"{settings.PUBLIC_URL}/mcp/files/", "files"),
        (f"{settings.PUBLIC_URL.upper().replace('HTTP', 'http')}/mcp/files", "files"),
        (f"{settings.PUBLIC_URL}/mcp/files/x", ""),
        (f"{settings.PUBLIC_URL}/mcp/files?x=1", ""),
        (f"{settings.PUBLIC_URL}", ""),
        ("https://elsewhere.example/mcp/files", ""),
        ("http://[::1/mcp/files", ""),
    ],
)
def test_a_resource_is_an_endpoint_however_it_is_written(resource: str, slug: str) -> None:
    assert slug_of(resource) == slug


def test_parameters_of_a_stranger_are_not_taken_for_our_notes(
    signed_in: Client, files: Server, program: OAuthClient
) -> None:
    found = exchange(allow(signed_in)).json()
    assert renew(found["refresh_token"], code_row="x", grant="y").status_code == 200
    assert authorization_server.token_response({}, "grant_type=password&username=a&password=b").status in (400, 401)
