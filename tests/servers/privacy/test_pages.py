"""The privacy page changes what is stored, and says what each rule makes of a sample without storing it."""

import json
import re
from typing import Any

import pytest
from django.test import Client

from servers.audit import payload_privacy
from servers.enums import AuditAction, RedactedPart
from servers.models import AuditEvent, PrivacySettings, RedactionRule, Server
from servers.privacy import changing

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(client: Client, admin: Any) -> Client:
    client.force_login(admin)
    return client


def words(response: Any, status: int = 200) -> str:
    assert response.status_code == status
    text = re.sub(r"<(script|style|svg|template)\b.*?</\1>", " ", response.content.decode(), flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", text).replace("&#x27;", "'").replace("&quot;", '"').split())


def changes() -> list[dict[str, Any]]:
    found = AuditEvent.objects.filter(action=AuditAction.PRIVACY_CHANGE).order_by("seq")
    return [json.loads(event.body)["details"] for event in found]


def test_switching_the_encryption_on_is_stored_recorded_and_said(ada: Client) -> None:
    seen = changing.mark(changing.settings_now())
    ada.post("/privacy/", {"seal_payloads": "on", "mask_by_schema": "on", "seen": seen})
    assert payload_privacy.stored() == payload_privacy.PayloadPrivacy(seal=True, by_schema=True, detect=False)
    assert changes() == [
        {
            "changes": {
                "encrypt arguments and results": {"before": "off", "after": "on"},
                "mask detected secrets": {"before": "on", "after": "off"},
            }
        }
    ]
    assert "Free-text search covers names, not the arguments" in words(ada.get("/privacy/"))


def test_saving_what_holds_already_records_nothing(ada: Client) -> None:
    response = ada.post("/privacy/", {"mask_by_schema": "on", "mask_detected": "on"}, follow=True)
    assert "Nothing changed" in words(response)
    assert changes() == []


def test_a_page_that_shows_old_settings_restores_none_of_them(ada: Client) -> None:
    (seen,) = re.findall(r'name="seen" value="([^"]+)"', ada.get("/privacy/").content.decode())
    PrivacySettings.objects.create(pk=1, seal_payloads=True)
    answer = ada.post("/privacy/", {"mask_by_schema": "on", "seen": seen})
    assert "These settings changed after you opened this page" in words(answer, 409)
    assert re.search(r'name="seal_payloads"[^>]*checked', answer.content.decode())
    now = changing.settings_now()
    assert (now.seal_payloads, now.mask_detected, changes()) == (True, True, [])
    assert f'name="seen" value="{changing.mark(now)}"' in answer.content.decode()


def test_without_a_key_ring_the_encryption_cannot_be_switched_on(ada: Client, settings: Any, tmp_path: Any) -> None:
    settings.KEYRING_FILE = tmp_path / "missing.json"
    assert "cannot be read" in words(ada.post("/privacy/", {"seal_payloads": "on"}), 422)
    assert not PrivacySettings.objects.exists()


def test_a_rule_is_added_changed_disabled_and_deleted_each_with_an_event(
    ada: Client, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        ada.post("/privacy/rules/add/", {"path": "$..pin", "part": "arguments", "target": "pay_*"})
    rule = RedactionRule.objects.get()
    assert payload_privacy.current().rules == (payload_privacy.Rule("$..pin", "arguments", None, "pay_*"),)
    ada.post(f"/privacy/rules/{rule.uid}/", {"path": "$.pin", "part": "all", "note": "cards"})
    ada.post(f"/privacy/rules/{rule.uid}/switch/", {"enabled": "0"})
    assert payload_privacy.stored().rules == ()
    assert "$.pin" in words(ada.get("/privacy/"))
    assert f'href="/privacy/rules/{rule.uid}/delete/"' in ada.get("/privacy/").content.decode()
    asked = words(ada.get(f"/privacy/rules/{rule.uid}/delete/"))
    assert "The rule is off, so deleting it changes nothing" in asked
    assert RedactionRule.objects.exists(), "the page only asks"
    ada.post(f"/privacy/rules/{rule.uid}/delete/")
    assert [change["rule"] for change in changes()] == ["added", "changed", "disabled", "deleted"]
    assert changes()[1]["before"]["path"] == "$..pin"
    assert "No rules" in words(ada.get("/privacy/"))


def test_the_event_of_a_changed_rule_says_of_which_server_it_was(ada: Client) -> None:
    servers = [
        Server.objects.create(slug=name, name=name.title(), transport="stdio", command="cat") for name in ("one", "two")
    ]
    given = {"path": "$.pin", "part": "all"}
    ada.post("/privacy/rules/add/", given)
    rule = RedactionRule.objects.get()
    for server in servers:
        ada.post(f"/privacy/rules/{rule.uid}/", given | {"server": server.pk})
    found = [(change.get("before", {}).get("server"), change["server"]) for change in changes()]
    assert found == [(None, ""), ("", "One"), ("One", "Two")]
    ada.post(f"/privacy/rules/{rule.uid}/", given | {"server": servers[-1].pk})
    assert len(changes()) == 3, "a rule that stays as it is"


def test_a_rule_that_is_deleted_while_it_is_saved_is_said_to_be_gone(
    ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada.post("/privacy/rules/add/", {"path": "$.pin", "part": "all"})
    rule, check = RedactionRule.objects.get(), changing._check

    def meanwhile(values: changing.RuleValues) -> None:
        check(values)
        RedactionRule.objects.all().delete()

    monkeypatch.setattr(changing, "_check", meanwhile)
    response = ada.post(f"/privacy/rules/{rule.uid}/", {"path": "$.code", "part": "all"})
    assert "Page not found" in words(response, 404)
    assert [change["rule"] for change in changes()] == ["added"]


@pytest.mark.parametrize("new", [True, False])
def test_a_rule_whose_server_is_deleted_while_it_is_saved_asks_for_another(
    ada: Client, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    server = Server.objects.create(slug="one", name="One", transport="stdio", command="cat")
    if not new:
        ada.post("/privacy/rules/add/", {"path": "$.pin", "part": "all"})
    before, check = changes(), changing._check

    def meanwhile(values: changing.RuleValues) -> None:
        check(values)
        Server.objects.all().delete()

    monkeypatch.setattr(changing, "_check", meanwhile)
    place = "add" if new else RedactionRule.objects.get().uid
    response = ada.post(f"/privacy/rules/{place}/", {"path": "$.code", "part": "all", "server": server.pk})
    assert "One has been deleted. Choose another server." in words(response, 422)
    assert changes() == before


def test_a_path_that_is_none_is_refused_at_its_field(ada: Client) -> None:
    response = ada.post("/privacy/rules/add/", {"path": "$..[", "part": "all"})
    assert "Not a JSONPath (RFC 9535)" in words(response, 422)
    assert not RedactionRule.objects.exists()


def test_the_try_out_shows_the_masked_sample_and_stores_nothing(ada: Client) -> None:
    sample = {"try-path": "$..token", "try-part": RedactedPart.ALL, "try-sample": '{"a": [{"token": "hunter2"}]}'}
    page = words(ada.post("/privacy/try/", sample))
    assert "1 value masked" in page
    assert '"token": "[redacted]"' in page
    assert changes() == []
    assert "Not JSON" in words(ada.post("/privacy/try/", sample | {"try-sample": "{"}), 422)


@pytest.mark.parametrize(
    "sample",
    [
        {"content": [{"type": "text", "text": '{"token": "hunter2"}'}]},
        {"contents": [{"uri": "a:b", "text": '{"token": "hunter2"}'}]},
        {"messages": [{"role": "user", "content": {"type": "text", "text": '{"token": "hunter2"}'}}]},
        {"structuredContent": {"token": "hunter2"}},
    ],
    ids=lambda sample: next(iter(sample)),
)
def test_the_try_out_for_all_parts_takes_a_result_as_one(ada: Client, sample: dict[str, Any]) -> None:
    data = {"try-path": "$.token", "try-part": RedactedPart.ALL, "try-sample": json.dumps(sample)}
    assert "1 value masked" in words(ada.post("/privacy/try/", data))


def test_the_try_out_of_a_path_applies_the_other_rules_too(ada: Client) -> None:
    RedactionRule.objects.create(path="$.a", created_by_name="ada")
    data = {"try-path": "$.b", "try-part": "all", "try-sample": '{"a": 1, "b": 2, "c": 3}'}
    assert "2 values masked" in words(ada.post("/privacy/try/", data))
    assert "Nothing is masked in this sample." in words(ada.post("/privacy/try/", data | {"try-sample": '{"c": 3}'}))


def test_the_try_out_without_a_path_applies_what_is_in_force(ada: Client) -> None:
    RedactionRule.objects.create(path="$.a", created_by_name="ada")
    page = words(ada.post("/privacy/try/", {"try-path": "", "try-part": "all", "try-sample": '{"a": 1, "b": 2}'}))
    assert '"a": "[redacted]"' in page
