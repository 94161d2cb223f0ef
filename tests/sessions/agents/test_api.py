"""The HTTP API as an agent meets it: a walk over all operations, whose answers must fit the OpenAPI document."""

import json
import math
import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest

from servers.audit import payloads
from servers.enums import PayloadKind
from sessions.api import calls
from tests.sessions.agents.product import Product
from tests.sessions.host.harness import eventually

pytestmark = pytest.mark.up
ALL = ("list", "read", "call", "history", "audit")
PROBLEM = "application/problem+json"


class Api:
    """Each answer is checked against the document of the product itself."""

    def __init__(self, product: Product, token: str, document: dict[str, Any], seen: set[str]) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(base_url=f"{product.stack.base_url}/api/v1", headers=headers, timeout=60)
        self._document, self._seen = document, seen

    def ask(self, verb: str, path: str, **given: Any) -> httpx.Response:
        """`path` as the document has it, with its parameters in `at`. Comes back when it was too fast, as a program does,
        unless `hasty`."""
        at, hasty = given.pop("at", {}), given.pop("hasty", False)
        operation = self._document["paths"][f"/api/v1{path}"][verb.lower()]
        answer = self._client.request(verb, path.format(**at), **given)
        while answer.status_code == 429 and not hasty:
            time.sleep(answer.json()["retryAfterMs"] / 1000)
            answer = self._client.request(verb, path.format(**at), **given)
        self._seen.add(operation["operationId"])
        described = operation["responses"].get(str(answer.status_code)) or operation["responses"]["default"]
        media = answer.headers.get("content-type", "").partition(";")[0]
        if answer.status_code == 204:
            assert answer.content == b""
            return answer
        schema = described["content"][media]["schema"]
        whole = {**schema, "components": self._document["components"]}
        jsonschema_rs.Draft202012Validator(whole, validate_formats=True).validate(answer.json())
        return answer

    def call(self, tool: str, arguments: dict[str, Any], key: str = "", **given: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        body = {"tool": tool, "arguments": arguments}
        at = {"slug": given.pop("server", "legacy")}
        return self.ask("POST", "/servers/{slug}/calls", at=at, json=body, headers=headers, **given)


@pytest.fixture(scope="module")
def document(product: Product) -> dict[str, Any]:
    answer = httpx.get(f"{product.stack.base_url}/api/v1/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest, document: dict[str, Any]) -> Iterator[set[str]]:
    asked: set[str] = set()
    yield asked
    run = {getattr(item, "originalname", "") for item in request.session.items if item.path == request.path}
    if run < {name for name in vars(request.module) if name.startswith("test_")}:
        return  # only some of the tests were chosen
    described = {operation["operationId"] for path in document["paths"].values() for operation in path.values()}
    assert described == asked


@pytest.fixture(scope="module")
def api(product: Product, document: dict[str, Any], seen: set[str]) -> Api:
    return Api(product, product.token(*ALL, label="api"), document, seen)


def test_the_document_is_openapi_and_its_schemas_are_valid(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    for schema in document["components"]["schemas"].values():
        assert jsonschema_rs.meta.is_valid(schema)
    assert document["components"]["securitySchemes"]["Token"] == {"type": "http", "scheme": "bearer"}


def test_an_address_that_does_not_exist_is_a_problem_too(product: Product) -> None:
    for verb, path in (("GET", "v1/nothing"), ("POST", "v2/servers")):
        answer = httpx.request(verb, f"{product.stack.base_url}/api/{path}")
        assert (answer.status_code, answer.headers["content-type"], answer.json()["status"]) == (404, PROBLEM, 404)


def test_every_operation_wants_a_token(product: Product, document: dict[str, Any], seen: set[str]) -> None:
    at = {"slug": "legacy", "uid": str(uuid.uuid4()), "number": 1}
    for path, operations in document["paths"].items():
        for verb in operations:
            answer = Api(product, "", document, set()).ask(verb.upper(), path.removeprefix("/api/v1"), at=at)
            assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM)


def test_servers_are_listed_in_pages_and_read(api: Api, product: Product) -> None:
    found, cursor = [], ""
    while True:
        page = api.ask("GET", "/servers", params={"limit": 2, "cursor": cursor}).json()
        found += page["items"]
        if not (cursor := page["next"] or ""):
            break
    slugs = [one["slug"] for one in found]
    assert slugs == sorted(set(slugs))
    assert {"legacy", "modern", "ours"} <= set(slugs)
    one = api.ask("GET", "/servers/{slug}", at={"slug": "legacy"}).json()
    assert (one["name"], one["mcp_url"]) == ("Legacy", product.url("legacy"))


def test_a_call_is_started_waited_for_and_in_the_ledger(api: Api, product: Product) -> None:
    started = api.call("echo", {"text": "by api"}, params={"wait": 20})
    found = started.json()
    assert (started.status_code, found["state"], found["program"].split("/")[0]) == (200, "succeeded", "python-httpx")
    assert found["result"]["content"] == [{"type": "text", "text": "by api"}]
    assert (found["arguments"], found["way"]) == ({"text": "by api"}, "agent")
    assert started.headers["location"] == f"/api/v1/calls/{found['id']}"
    (event,) = product.stack.rows(
        "SELECT body FROM servers_auditevent WHERE call_uid = ? AND action = 'call:tool:request'",
        found["id"].replace("-", ""),
    )
    assert json.loads(event["body"])["details"]["token_name"] == "api"


@pytest.mark.parametrize("text", ["ü 漢 😀", '"quotes" and \\ and \u2028'])
def test_arguments_and_result_of_a_call_come_as_they_are_stored(api: Api, text: str) -> None:
    started = api.call("echo", {"text": text}, params={"wait": 20}).json()
    read = api.ask("GET", "/calls/{uid}", at={"uid": started["id"]}).json()
    assert (read["arguments"], read["result"]["content"]) == ({"text": text}, [{"type": "text", "text": text}])
    assert started == read


@pytest.mark.django_db
def test_half_of_a_pair_of_surrogates_in_a_result_is_sent_as_its_escape() -> None:
    found = payloads.made(PayloadKind.RESULT, '{"text": "\ud83d"}')
    assert calls._stored_json(found) == b'{"text": "\\ud83d"}'


def test_one_key_is_one_call_whatever_comes_again(api: Api, product: Product) -> None:
    key = "api-key-1"
    first = api.call("slow", {"steps": 3, "delay": 0.1}, key)
    assert (first.status_code, first.json()["final"]) == (202, False)
    again = api.call("slow", {"steps": 3, "delay": 0.1}, key, params={"wait": 20}).json()
    assert (again["id"], again["state"]) == (first.json()["id"], "succeeded")
    other = api.call("slow", {"steps": 4, "delay": 0.1}, key)
    assert (other.status_code, other.headers["content-type"]) == (409, PROBLEM)
    without = api.ask("POST", "/servers/{slug}/calls", at={"slug": "legacy"}, json={"tool": "echo"})
    assert (without.status_code, without.json()["errors"][0]["at"].rpartition("/")[2]) == (422, "Idempotency-Key")


def test_a_running_call_is_cancelled(api: Api, product: Product) -> None:
    call = api.call("slow", {"steps": 300, "delay": 0.1}).json()
    at = {"uid": call["id"]}
    eventually(lambda: api.ask("GET", "/calls/{uid}", at=at).json()["state"] == "sent")
    api.ask("POST", "/calls/{uid}/cancel", at=at)
    over = api.ask("GET", "/calls/{uid}", at=at, params={"wait": 20}).json()
    assert (over["state"], over["may_have_run"]) == ("cancelled", True)


def test_calls_are_found_by_the_query_language_in_pages(api: Api, product: Product) -> None:
    for number in range(3):
        api.call("echo", {"text": f"paged {number}"}, params={"wait": 20})
    params: dict[str, Any] = {"q": "tool:echo outcome:ok", "limit": 2}
    first = api.ask("GET", "/calls", params=params).json()
    second = api.ask("GET", "/calls", params=params | {"cursor": first["next"]}).json()
    ids = [row["id"] for row in first["items"] + second["items"]]
    assert len(first["items"]) == 2
    assert len(set(ids)) == len(ids) >= 3
    wrong = api.ask("GET", "/calls", params={"q": "nowhere:x"})
    assert (wrong.status_code, wrong.json()["type"], wrong.json()["start"]) == (
        422,
        "urn:mcpadmin:problem:invalid-query",
        0,
    )


def test_a_subscription_is_made_read_in_versions_and_ended(api: Api) -> None:
    made = api.ask("POST", "/subscriptions", json={"server": "modern", "uri": "peer://readme", "title": "Read me"})
    at = {"uid": made.json()["id"]}
    assert made.status_code == 201
    eventually(lambda: api.ask("GET", "/subscriptions/{uid}", at=at).json()["newest_version"] >= 1)
    (row,) = api.ask("GET", "/subscriptions/{uid}/versions", at=at).json()["items"]
    one = api.ask("GET", "/subscriptions/{uid}/versions/{number}", at=at | {"number": row["number"]}).json()
    assert one["contents"][0]["text"].startswith("# A peer")
    assert at["uid"] in [
        item["id"] for item in api.ask("GET", "/subscriptions", params={"server": "modern"}).json()["items"]
    ]
    assert api.ask("DELETE", "/subscriptions/{uid}", at=at).status_code == 204
    assert api.ask("GET", "/subscriptions/{uid}", at=at).json()["active"] is False


def test_audit_events_are_read_along_the_chain(api: Api) -> None:
    first = api.ask("GET", "/audit-events", params={"limit": 5}).json()
    second = api.ask("GET", "/audit-events", params={"limit": 5, "cursor": first["next"]}).json()
    events = first["items"] + second["items"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["prev"] for event in events[1:]] == [event["hash"] for event in events[:-1]]


@pytest.mark.parametrize(
    ("scopes", "verb", "path", "given"),
    [
        (("call",), "GET", "/servers", {}),
        (("list",), "GET", "/calls", {}),
        (("list", "read", "call", "history"), "GET", "/audit-events", {}),
        (("call",), "GET", "/subscriptions", {}),
        (
            ("list", "read"),
            "POST",
            "/servers/{slug}/calls",
            {"json": {"tool": "echo"}, "headers": {"Idempotency-Key": "k"}},
        ),
    ],
)
def test_a_scope_that_is_missing_is_named(
    product: Product, api: Api, document: dict[str, Any], seen: set[str], scopes: Any, verb: str, path: str, given: Any
) -> None:
    before = len(product.calls())
    answer = Api(product, product.token(*scopes, label="few"), document, seen).ask(
        verb, path, at={"slug": "legacy"}, **given
    )
    assert (answer.status_code, answer.headers["content-type"]) == (403, PROBLEM)
    assert answer.json()["requiredScope"] in answer.headers["www-authenticate"]
    assert len(product.calls()) == before


def test_a_token_reads_nothing_of_servers_that_it_does_not_reach(
    product: Product, api: Api, document: dict[str, Any], seen: set[str]
) -> None:
    foreign = api.call("echo", {"text": "foreign"}, params={"wait": 20}).json()["id"]
    only = Api(product, product.token(*ALL, servers=("modern",), label="only modern"), document, seen)
    assert [one["slug"] for one in only.ask("GET", "/servers").json()["items"]] == ["modern"]
    own = only.call("echo", {"text": "own"}, server="modern", params={"wait": 20}).json()
    assert {row["server"] for row in only.ask("GET", "/calls").json()["items"]} == {own["server_name"]}
    events = only.ask("GET", "/audit-events", params={"limit": 500}).json()["items"]
    assert {event["server"] for event in events} == {own["server_name"]}
    for path, at in (("/calls/{uid}", {"uid": foreign}), ("/servers/{slug}", {"slug": "legacy"})):
        assert only.ask("GET", path, at=at).status_code == 404
    assert only.call("echo", {"text": "no"}).status_code == 404


def test_a_grant_for_another_address_of_this_installation_is_refused(
    product: Product, document: dict[str, Any], seen: set[str]
) -> None:
    """Its one endpoint is not known here, so nothing says what it may reach."""
    grant = Api(product, product.token(*ALL, label="moved"), document, seen)
    product.stack.write(
        "UPDATE servers_agenttoken SET resource = ? WHERE name = 'moved'", "https://old.example/mcp/ours"
    )
    assert grant.ask("GET", "/servers").status_code == 401


def test_worthless_tokens_cookies_and_too_much_are_refused_as_problems(
    product: Product, api: Api, document: dict[str, Any], seen: set[str]
) -> None:
    for token in ("", "mca_" + "a" * 12 + "_" + "b" * 43):
        answer = Api(product, token, document, seen).ask("GET", "/servers")
        assert (answer.status_code, answer.json()["type"]) == (401, "urn:mcpadmin:problem:unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert api.call("echo", {"other": 1}).json()["errors"]
    assert api.call("absent", {}).status_code == 422
    busy = Api(product, product.token("list", label="busy"), document, seen)
    product.allow_one_request_a_second("busy")
    answers = [busy.ask("GET", "/servers", hasty=True) for _ in range(30)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert "1 requests a second for this token" in refused[0].json()["detail"]
    assert int(refused[0].headers["retry-after"]) == math.ceil(refused[0].json()["retryAfterMs"] / 1000)
