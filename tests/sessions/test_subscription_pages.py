"""The subscription pages: what they show, what they refuse, and that server texts are escaped."""

import base64
import html
import json
import re
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from servers.audit import writer as writing
from servers.enums import IdentityKind, SignsInAs
from servers.models import Identity, Server
from sessions.connections import commands
from sessions.enums import Desired, SubscriptionState
from sessions.models import AgentFollow, McpSession, Subscription
from sessions.subscriptions import history
from tests.servers.conftest import person
from tests.sessions.host.make import make_session
from tests.sessions.subscriptions.rows import add_gap, add_version, make_subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]
HOSTILE = '<script>alert("x")</script>\u202e'


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Any:
    """The writer thread keeps its connection, and the next test may use another database."""
    yield
    writing.reset()


@pytest.fixture
def session() -> McpSession:
    return make_session("orders")


@pytest.fixture
def subscription(session: McpSession) -> Subscription:
    return make_subscription(session, title="Notes")


@pytest.fixture
def client() -> Client:
    """A client that may subscribe and read contents."""
    return signed_in("ada", "view_server", "manage_subscription", "view_payload")


def signed_in(name: str, *permissions: str) -> Client:
    client = Client()
    client.force_login(person(name, *permissions))
    return client


def page(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return answer.content.decode()


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def detail(subscription: Subscription, query: str = "") -> str:
    return f"/subscriptions/{subscription.uid}/{query}"


# --- the button ------------------------------------------------------------------------------------------------------
def test_subscribing_without_script_leads_to_the_subscription(client: Client, session: McpSession) -> None:
    answer = client.post("/servers/orders/subscribe/", {"uri": "demo://notes", "title": "Notes"})
    row = Subscription.objects.get()
    assert (answer.status_code, answer["Location"]) == (303, detail(row))
    assert (row.uri, row.title, row.active, row.created_by_name) == ("demo://notes", "Notes", True, "ada")


def test_the_button_comes_back_in_its_new_state(client: Client, session: McpSession) -> None:
    htmx = {"HX-Request": "true"}
    subscribed = client.post("/servers/orders/subscribe/", {"uri": "demo://notes"}, headers=htmx).content.decode()
    row = Subscription.objects.get()
    assert f'data-subscription-state="{row.uid}"' in subscribed
    assert "Unsubscribe" in subscribed
    ended = client.post(f"/subscriptions/{row.uid}/end/", headers=htmx).content.decode()
    assert ">Subscribe<" in re.sub(r"<svg.*?</svg>", "", ended)
    assert "Past changes" in ended
    row.refresh_from_db()
    assert not row.active


def test_who_ends_a_subscription_that_is_deleted_meanwhile_gets_the_button_of_none(
    client: Client, subscription: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(row: Subscription) -> int:
        Subscription.objects.filter(pk=row.pk).delete()
        return 0

    monkeypatch.setattr(history, "followers", counted)
    ended = client.post(f"/subscriptions/{subscription.uid}/end/", headers={"HX-Request": "true"})
    assert ended.status_code == 200
    text = ended.content.decode()
    assert ">Subscribe<" in re.sub(r"<svg.*?</svg>", "", text)
    assert "Past changes" not in text


def test_who_ends_a_subscription_that_agents_follow_is_told_of_them(client: Client, subscription: Subscription) -> None:
    left = {"subscription": subscription, "uri": subscription.uri, "renewed_at": timezone.now()}
    AgentFollow.objects.create(**left)
    assert "Agents following" not in page(client, detail(subscription))
    AgentFollow.objects.create(stream=uuid4(), **left)
    assert "Agents following 1" in words(page(client, detail(subscription)))
    ended = client.post(f"/subscriptions/{subscription.uid}/end/", follow=True).content.decode()
    assert "1 agent that followed it will receive no more updates." in words(ended)
    assert "Agents following" not in ended


def test_a_refused_uri_is_reported_at_the_button(client: Client, session: McpSession) -> None:
    answer = client.post("/servers/orders/subscribe/", {"uri": ""}, headers={"HX-Request": "true"})
    assert answer.status_code == 422
    assert "Invalid resource URI" in answer.content.decode()
    assert client.post("/servers/orders/subscribe/", {"uri": ""})["Location"] == "/servers/orders/resources/"


@pytest.mark.parametrize("verb", ["end", "delete", "settings", "test"])
def test_who_may_only_look_changes_nothing(verb: str, subscription: Subscription) -> None:
    looker = signed_in("vera", "view_server")
    assert looker.post(f"/subscriptions/{subscription.uid}/{verb}/").status_code == 403
    assert looker.post("/servers/orders/subscribe/", {"uri": "demo://b"}).status_code == 403
    assert Subscription.objects.get().active
    shown = page(looker, detail(subscription))
    assert "Unsubscribe<" not in shown
    assert "Settings" not in words(shown.partition("<main")[2].partition("</main>")[0])


def test_who_sees_no_servers_sees_no_subscription(subscription: Subscription) -> None:
    stranger = signed_in("stan", "manage_subscription", "view_payload")
    add_version(subscription, "secret")
    for path in (detail(subscription), f"{detail(subscription)}settings/", f"{detail(subscription)}versions/1/"):
        page(stranger, path, 404)
    assert "Notes" not in page(stranger, "/subscriptions/")


# --- the board -------------------------------------------------------------------------------------------------------
def test_the_board_shows_state_numbers_and_what_is_wrong(client: Client, session: McpSession) -> None:
    bad = make_subscription(session, "demo://bad", state=SubscriptionState.REFUSED, read_fault="timeout")
    add_gap(bad, began=5)
    text = page(client, "/subscriptions/")
    for expected in ("demo://bad", "Refused", "Gap since", "Read failed", "No updates in the last 24 hours"):
        assert expected in text


def test_the_filters_are_in_the_address(client: Client, session: McpSession) -> None:
    make_subscription(session, "demo://one")
    make_subscription(session, "demo://two", active=False, state=SubscriptionState.ENDED)
    assert "demo://two" not in page(client, "/subscriptions/")
    assert "demo://two" in page(client, "/subscriptions/?show=ended")
    assert "No matching subscriptions" in page(client, "/subscriptions/?text=nothing-of-this-name")
    past_the_last = page(client, "/subscriptions/?show=ended&before=2020-01-01T00:00:00Z~1")
    assert '<a href="?show=ended">Back to the first page</a>' in past_the_last


def test_the_first_look_says_how_to_begin(client: Client) -> None:
    assert "choose Subscribe" in page(client, "/subscriptions/")


# --- the history -----------------------------------------------------------------------------------------------------
def test_the_newest_version_is_shown_against_the_one_before(client: Client, subscription: Subscription) -> None:
    add_version(subscription, "same\nold\n", minutes_ago=9)
    add_version(subscription, "same\nnew\n")
    text = words(page(client, detail(subscription)))
    assert "Version 2" in text
    assert "1 line added, 1 removed" in text
    assert "- removed old" in text
    assert "+ added new" in text


def test_any_two_versions_are_compared_by_the_address(client: Client, subscription: Subscription) -> None:
    for number in range(1, 4):
        add_version(subscription, json.dumps({"count": number, "same": True}), minutes_ago=9 - number)
    text = words(page(client, detail(subscription, "?version=1&against=3")))
    assert "Compared with version 3" in text
    assert "1 value changed" in text
    assert "$.count changed before 3 now 1" in text


def test_a_version_whose_content_stayed_says_what_changed_around_it(client: Client, subscription: Subscription) -> None:
    for tag in ("1", "2"):
        add_version(subscription, {"uri": subscription.uri, "text": "the same", "_meta": {"etag": tag}})
    text = words(page(client, detail(subscription)))
    assert "Other fields changed" in text
    assert "The content is unchanged." in text
    assert "$._meta.etag" in text
    assert "Both versions have the same content." not in text


def test_the_history_counts_what_is_stored_and_says_where_it_ends(client: Client, subscription: Subscription) -> None:
    for number in range(1, 4):
        add_version(subscription, str(number), minutes_ago=9 - number)
    ends = "Older versions are no longer stored."
    shown = words(page(client, detail(subscription)))
    assert "History 3 " in shown
    assert ends not in shown
    subscription.versions.filter(number=1).delete()
    shown = words(page(client, detail(subscription)))
    assert "History 2 " in shown
    assert ends in shown
    for number in range(4, 34):
        add_version(subscription, str(number))
    assert ends not in words(page(client, detail(subscription)))
    assert ends in words(page(client, detail(subscription, "?before=4")))


def test_a_version_that_is_not_kept_any_more_says_so(client: Client, subscription: Subscription) -> None:
    add_version(subscription, "1")
    assert "Version 7 is no longer stored" in page(client, detail(subscription, "?version=7"))
    assert "Version 1" in page(client, detail(subscription, "?version=nonsense&against=99&before=x"))


@pytest.mark.parametrize(
    ("ended", "changed", "expected"),
    [
        (2, True, "The content changed in that time."),
        (2, False, "The content did not change."),
        (2, None, "Changes in that time may be missing."),
        (None, None, "to now The connection was lost. The resource will be read when listening resumes."),
    ],
)
def test_a_gap_says_whether_something_was_missed(
    ended: float | None, changed: bool | None, expected: str, client: Client, session: McpSession
) -> None:
    subscription = make_subscription(session, state=SubscriptionState.WAITING)
    add_version(subscription, "1", minutes_ago=9)
    add_gap(subscription, began=5, ended=ended, changed=changed)
    text = words(page(client, detail(subscription)))
    assert "Not listening" in text
    assert expected in text


def test_who_listens_again_is_not_said_to_be_deaf_while_the_read_after_the_gap_fails(
    client: Client, subscription: Subscription
) -> None:
    add_version(subscription, "1", minutes_ago=9)
    add_gap(subscription, began=5)
    Subscription.objects.update(read_fault="timeout", read_detail="No answer.")
    text = words(page(client, detail(subscription)))
    assert "Subscribed; listening for updates." in text
    assert text.count("The resource has not been read since.") == 2
    for wrong in ("Not listening since", "to now", "when listening resumes"):
        assert wrong not in text


def test_a_refusal_is_shown_with_its_reason(client: Client, session: McpSession) -> None:
    row = make_subscription(session, state=SubscriptionState.REFUSED, reason="Method not found")
    text = words(page(client, detail(row)))
    assert "The server refused the subscription." in text
    assert "Method not found" in text


def test_before_the_first_read_the_page_says_what_it_waits_for(client: Client, session: McpSession) -> None:
    row = make_subscription(session, state=SubscriptionState.WAITING)
    assert "Subscribes as soon as the session is ready." in page(client, detail(row))
    McpSession.objects.update(desired=Desired.CLOSED)
    assert "The session is disconnected. Connect it to continue." in page(client, detail(row))
    session.server.enabled = False
    session.server.save()
    assert "The server is disabled. Enable it to continue." in page(client, detail(row))


@pytest.mark.parametrize(
    ("state", "polls", "comes"),
    [
        (SubscriptionState.REFUSED, 60.0, True),
        (SubscriptionState.REFUSED, 0.0, False),
        (SubscriptionState.LOST, 0.0, False),
        (SubscriptionState.REQUESTED, 0.0, True),
        (SubscriptionState.WAITING, 0.0, True),
    ],
)
def test_a_first_version_is_not_promised_where_nothing_reads_the_resource(
    state: SubscriptionState, polls: float, comes: bool, client: Client, session: McpSession, settings: Any
) -> None:
    settings.RESOURCE_POLL_SECONDS = polls
    text = words(page(client, detail(make_subscription(session, state=state))))
    assert ("The first version appears here automatically." in text) is comes


@pytest.mark.parametrize(
    ("state", "active", "retried"),
    [
        (SubscriptionState.LISTENING, True, True),
        (SubscriptionState.REFUSED, True, True),
        (SubscriptionState.WAITING, True, False),
        (SubscriptionState.ENDED, False, False),
    ],
)
def test_a_failed_read_is_said_to_be_retried_only_while_it_is(
    state: SubscriptionState, active: bool, retried: bool, client: Client, session: McpSession
) -> None:
    row = make_subscription(session, state=state, active=active, read_fault="timeout", read_detail="No answer.")
    text = words(page(client, detail(row)))
    assert "The last read failed No answer." in text
    assert ("mcpadmin will retry automatically." in text) is retried


def test_only_users_of_its_identity_can_subscribe_again(client: Client, session: McpSession) -> None:
    Server.objects.update(signs_in_as=SignsInAs.EITHER)
    ended = make_subscription(session, active=False, state=SubscriptionState.ENDED)
    others = "Only users of this identity can subscribe again."
    shown = page(client, detail(ended))
    assert "Subscribe again" in shown
    assert others not in shown
    ada = get_user_model().objects.get(username="ada")
    own = Identity.objects.create(server=session.server, user=ada, kind=IdentityKind.PERSONAL, name="ada")
    shown = page(client, detail(ended))
    assert "Subscribe again" not in shown
    assert others in shown
    mine = make_subscription(commands.session_of(own, session.server), active=False, state=SubscriptionState.ENDED)
    assert "Subscribe again" in page(client, detail(mine))
    assert "Subscribe again" not in page(
        signed_in("vera", "view_server", "manage_subscription", "view_payload"), detail(mine)
    )
    Subscription.objects.update(active=True)
    assert others not in page(client, detail(ended))


def test_who_subscribes_again_is_told_what_is_in_the_way(client: Client, session: McpSession) -> None:
    def told() -> str:
        return words(client.post("/servers/orders/subscribe/", {"uri": "demo://a"}, follow=True).content.decode())

    assert "Subscribed. The server is disabled" not in told()
    session.server.enabled = False
    session.server.save()
    assert "Subscribed. The server is disabled. Enable it to continue." in told()


def test_hostile_words_stay_words(client: Client, session: McpSession) -> None:
    row = make_subscription(session, HOSTILE, title=HOSTILE, state=SubscriptionState.LOST, reason=HOSTILE)
    add_version(row, HOSTILE, minutes_ago=5, mime_type=HOSTILE)
    add_version(row, json.dumps({HOSTILE: HOSTILE}), minutes_ago=4)
    add_version(row, json.dumps({HOSTILE: [HOSTILE]}), minutes_ago=3)
    add_version(row, {"uri": HOSTILE, "blob": HOSTILE, "mimeType": HOSTILE}, {"uri": "b", "text": HOSTILE})
    for query in ("", "?version=1", "?version=2", "?version=3", "?view=content", "?version=2&against=4"):
        text = page(client, detail(row, query))
        assert "<script>alert" not in text
        assert "\u202e" not in re.sub(r'title="[^"]*"', "", text)
    for path in ("/subscriptions/", f"{detail(row)}settings/", f"{detail(row)}delete/"):
        assert "<script>alert" not in page(client, path)


def test_without_permission_the_content_is_not_shown(subscription: Subscription) -> None:
    add_version(subscription, "first-reserved", minutes_ago=5)
    add_version(subscription, "second-reserved")
    looker = signed_in("vera", "view_server", "manage_subscription")
    for query in ("", "?view=content", "?version=1"):
        text = page(looker, detail(subscription, query))
        assert "reserved" not in text
        assert "have permission to read the content" in text
    page(looker, f"{detail(subscription)}versions/1/", 403)


# --- files -----------------------------------------------------------------------------------------------------------
def test_a_download_can_never_become_a_page(client: Client, subscription: Subscription) -> None:
    add_version(subscription, {"uri": "a", "mimeType": "text/html", "text": "<script>alert(1)</script>"})
    answer = client.get(f"{detail(subscription)}versions/1/?item=0")
    assert answer.content == b"<script>alert(1)</script>"
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"] == 'attachment; filename="version-1-1.txt"'
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer["Content-Security-Policy"]


def test_a_download_of_binary_is_decoded(client: Client, subscription: Subscription) -> None:
    add_version(subscription, {"uri": "a", "blob": base64.b64encode(b"\0\xff").decode()})
    assert client.get(f"{detail(subscription)}versions/1/?item=0").content == b"\0\xff"
    assert client.get(f"{detail(subscription)}versions/1/?item=1").status_code == 404
    assert client.get(f"{detail(subscription)}versions/2/").status_code == 404


# --- settings --------------------------------------------------------------------------------------------------------
READING = {"_section": "reading", "min_interval_seconds": 60, "keep_count": 7, "keep_days": 8, "keep_mib": 9}


def filled(client: Client, subscription: Subscription, section: str) -> dict[str, str]:
    """One of the forms, as a browser sends it when nothing is changed in it."""
    text = page(client, f"{detail(subscription)}settings/")
    (form,) = (one for one in re.findall(r"<form.*?</form>", text, re.DOTALL) if f'value="{section}"' in one)
    sent = {}
    for tag in re.findall(r"<input[^>]*>", form):
        attributes = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if attributes["type"] != "checkbox" or " checked" in tag:
            sent[attributes["name"]] = html.unescape(attributes.get("value", "on" if " checked" in tag else ""))
    return sent


def test_what_is_read_and_kept_can_be_set(client: Client, subscription: Subscription) -> None:
    sent = filled(client, subscription, "reading")
    assert sent.pop("notify") == "on"
    answer = client.post(f"{detail(subscription)}settings/", sent | READING)
    assert answer.status_code == 303
    subscription.refresh_from_db()
    found = (subscription.notify, subscription.min_interval_seconds, subscription.keep_count, subscription.keep_bytes)
    assert found == (False, 60, 7, 9 * 1024 * 1024)


def test_what_another_person_saved_since_the_form_was_opened_stays(client: Client, subscription: Subscription) -> None:
    sent = filled(client, subscription, "reading")
    Subscription.objects.update(notify=False, keep_count=5_000, keep_bytes=80 * 1024 * 1024 + 1)
    assert client.post(f"{detail(subscription)}settings/", sent | {"keep_days": "8"}).status_code == 303
    subscription.refresh_from_db()
    found = (subscription.notify, subscription.keep_count, subscription.keep_bytes, subscription.keep_days)
    assert found == (False, 5_000, 80 * 1024 * 1024 + 1, 8)


def test_what_is_shown_again_after_an_error_is_compared_with_what_was_shown_first(
    client: Client, subscription: Subscription
) -> None:
    sent = filled(client, subscription, "reading")
    Subscription.objects.update(keep_count=5_000)
    refused = client.post(f"{detail(subscription)}settings/", sent | {"keep_days": "0"}).content.decode()
    assert re.search(r'name="initial-keep_count" value="200"', refused)


def test_a_new_secret_does_not_bring_back_the_url_that_another_person_replaced(
    client: Client, subscription: Subscription
) -> None:
    first, second = "https://hooks.example.com/a?b=1&c=2", "https://hooks.example.com/second"
    client.post(f"{detail(subscription)}settings/", {"_section": "webhook", "webhook_url": first})
    sent = filled(client, subscription, "webhook")
    assert sent["webhook_url"] == first
    Subscription.objects.update(webhook_url=second)
    renewed = client.post(f"{detail(subscription)}settings/", sent | {"renew": "1"}).content.decode()
    assert "whsec_" in renewed
    assert f'value="{second}"' in renewed
    assert html.escape(first) not in renewed
    subscription.refresh_from_db()
    assert subscription.webhook_url == second


def test_a_number_out_of_bounds_is_refused_at_its_field(client: Client, subscription: Subscription) -> None:
    answer = client.post(f"{detail(subscription)}settings/", READING | {"keep_count": 0})
    assert answer.status_code == 422
    assert 'id="id_keep_count_error"' in answer.content.decode()


def test_the_signing_secret_is_shown_once(client: Client, subscription: Subscription) -> None:
    sent = {"_section": "webhook", "webhook_url": "https://hooks.example.com/x"}
    first = client.post(f"{detail(subscription)}settings/", sent)
    secrets = re.findall(r"whsec_[A-Za-z0-9+/=]+", first.content.decode())
    assert len(secrets) == 1
    assert "no-store" in first["Cache-Control"]
    assert "whsec_" not in page(client, f"{detail(subscription)}settings/")
    assert client.post(f"{detail(subscription)}settings/", sent).status_code == 303
    renewed = client.post(f"{detail(subscription)}settings/", sent | {"renew": "1"}).content.decode()
    assert re.findall(r"whsec_[A-Za-z0-9+/=]+", renewed) != secrets


def test_a_webhook_of_another_scheme_is_refused_at_its_field(client: Client, subscription: Subscription) -> None:
    sent = {"_section": "webhook", "webhook_url": "file:///etc/passwd"}
    answer = client.post(f"{detail(subscription)}settings/", sent)
    assert answer.status_code == 422
    assert 'id="id_webhook_url_error"' in answer.content.decode()


def test_a_test_message_appears_among_the_deliveries(client: Client, subscription: Subscription) -> None:
    client.post(
        f"{detail(subscription)}settings/", {"_section": "webhook", "webhook_url": "https://hooks.example.com/"}
    )
    answer = client.post(f"{detail(subscription)}test/")
    assert (answer.status_code, answer["Location"]) == (303, f"{detail(subscription)}settings/#deliveries")
    assert "Pending" in page(client, f"{detail(subscription)}settings/")


def test_a_deleted_subscription_is_gone_with_its_versions(client: Client, subscription: Subscription) -> None:
    add_version(subscription, "1")
    assert "1 version with its content" in words(page(client, f"{detail(subscription)}delete/"))
    assert client.post(f"{detail(subscription)}delete/")["Location"] == "/subscriptions/"
    assert not Subscription.objects.exists()
