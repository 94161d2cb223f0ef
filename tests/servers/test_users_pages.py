"""The pages of users and groups, and one's own account."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.accounts import browser_sessions, catalog, links, people, reads
from servers.accounts.forms import GroupForm
from servers.accounts.links import Invitation
from servers.audit.record import SYSTEM
from servers.enums import AuditAction
from servers.models import AccountLink, AuditEvent, Credential, Identity, ReferenceGrant, Server
from tests.servers.conftest import person

pytestmark = pytest.mark.django_db
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


@pytest.fixture(autouse=True)
def no_attempts_yet() -> Iterator[None]:
    cache.clear()
    browser_sessions._seen.clear()
    yield
    cache.clear()


@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root", password="correct horse battery"))
    return client


def text_of(answer: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def link_in(answer: Any) -> str:
    found = re.search(r'value="(http[^"]*/link/[^"]+)"', answer.content.decode())
    assert found, text_of(answer)
    return found[1].partition("/link/")[2]


# --- the list --------------------------------------------------------------------------------------------------------
def test_all_invitations_are_those_that_the_search_finds(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "WAITING_SHOWN", 1)
    for name in ("Nina New", "Nora New", "Otto Old"):
        links.invite(SYSTEM, None, Invitation(name, f"{name[0]}{name[-1]}{name[1]}@example.com"))
    page = root.get("/users/", {"text": "New"}).content.decode()
    (address,) = [unescape(found) for found in re.findall(r'href="(\?[^"]*)">All invitations', page)]
    words = text_of(root.get(f"/users/{address}"))
    assert "Nina New" in words
    assert "Nora New" in words
    assert "Otto" not in words


def test_the_list_shows_state_groups_and_last_sign_in_and_finds_by_any_name(root: Client) -> None:
    vera = person("vera", first_name="Vera", last_name="Voss", email="v@example.com", is_active=False)
    vera.groups.add(Group.objects.create(name="Night shift"))
    links.invite(SYSTEM, None, Invitation("Nina New", "nina@example.com"))
    words = text_of(root.get("/users/"))
    assert all(
        part in words for part in ("vera", "Vera Voss", "Disabled", "Night shift", "Never", "Nina New", "Invited")
    )
    for text in ("vera", "Voss", "v@example"):
        assert "vera" in text_of(root.get("/users/", {"text": text}))
    assert "No matching users" in text_of(root.get("/users/", {"text": "zoe"}))
    active = text_of(root.get("/users/", {"show": "active"}))
    assert "vera" not in active
    assert "Nina" not in active
    invited = text_of(root.get("/users/", {"show": "invited"}))
    assert "Nina New" in invited
    assert "Voss" not in invited
    assert "does not filter" in text_of(root.get("/users/?show=nonsense")) or "nonsense" in text_of(
        root.get("/users/?show=nonsense")
    )


def test_pages_of_the_list_follow_each_other_without_gaps(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "PAGE_SIZE", 3)
    names = {person(f"p{number}").username for number in range(7)} | {"root"}
    found, path = [], "/users/"
    for _ in range(3):
        page = root.get(path).content.decode()
        found += re.findall(r'href="/users/\d+/">([^<]+)</a>', page)
        older = re.search(r"before=(\d+)", page)
        path = f"/users/?before={older[1]}" if older else ""
    assert sorted(found) == sorted(names)
    assert path == ""


def test_one_person_and_twenty_need_the_same_number_of_queries(root: Client) -> None:
    group = Group.objects.create(name="Night shift")

    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert root.get("/users/").status_code == 200
        return len(captured)

    person("first").groups.add(group)
    before = queries()
    for number in range(20):
        person(f"p{number}").groups.add(group)
    assert queries() == before


def test_one_invitation_and_ten_need_the_same_number_of_queries(root: Client) -> None:
    me, mona = get_user_model().objects.get(username="root"), person("mona", "manage_users", "call_tool")

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert root.get("/users/").status_code == 200
        return len(captured)

    links.invite(SYSTEM, me, Invitation("first", permissions=["call_tool"]))
    before = queries()
    for number in range(8):
        links.invite(SYSTEM, me, Invitation(f"n{number}", permissions=["call_tool"]))
    assert queries() == before
    AccountLink.objects.update(issued_by=mona, expires_at=timezone.now())
    assert queries() < before, "what has expired is covered by nobody"


# --- invitations -----------------------------------------------------------------------------------------------------
def test_an_administrator_invites_renews_and_revokes(root: Client) -> None:
    group = Group.objects.create(name="Night shift")
    answer = root.post("/users/invite/", {"name": "Nina", "groups": [group.pk], "own": ["call_tool"]})
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    first = link_in(answer)
    row = AccountLink.objects.get()
    assert (row.name, row.issued_by_name, list(row.groups.all())) == ("Nina", "root", [group])
    assert first.strip("/") not in root.get("/users/").content.decode(), "it is shown once"
    second = link_in(root.post(f"/users/invitations/{row.uid}/renew/"))
    assert Client().get(f"/link/{first}").status_code == 404
    assert Client().get(f"/link/{second}").status_code == 200
    assert "Revoke the invitation for Nina?" in text_of(root.get(f"/users/invitations/{row.uid}/revoke/"))
    assert Client().get(f"/link/{second}").status_code == 200
    assert "The invitation for Nina was revoked" in text_of(
        root.post(f"/users/invitations/{row.uid}/revoke/", follow=True)
    )
    assert Client().get(f"/link/{second}").status_code == 404
    assert "Nina" not in text_of(root.get("/users/"))
    assert "Link revoked" in text_of(root.get("/users/?show=invited"))
    wanted = {AuditAction.USER_INVITE, AuditAction.LINK_REISSUE, AuditAction.LINK_REVOKE}
    assert wanted <= set(AuditEvent.objects.filter(actor_name="root").values_list("action", flat=True))


def test_reloading_a_page_that_shows_a_link_creates_no_other_link(root: Client) -> None:
    first = {"name": "Nina", "csrfmiddlewaretoken": "1" * 64}
    link = link_in(root.post("/users/invite/", first))
    assert "shown only once" in text_of(root.post("/users/invite/", first, follow=True))
    row = AccountLink.objects.get()
    renewed = {"csrfmiddlewaretoken": "2" * 64}
    second = link_in(root.post(f"/users/invitations/{row.uid}/renew/", renewed))
    assert "shown only once" in text_of(root.post(f"/users/invitations/{row.uid}/renew/", renewed, follow=True))
    assert Client().get(f"/link/{link}").status_code == 404
    assert Client().get(f"/link/{second}").status_code == 200

    nina = person("nina")
    asked = {"csrfmiddlewaretoken": "3" * 64}
    third = link_in(root.post(f"/users/{nina.pk}/password-link/", asked))
    assert "shown only once" in text_of(root.post(f"/users/{nina.pk}/password-link/", asked, follow=True))
    assert Client().get(f"/link/{third}").status_code == 200


def test_a_used_invitation_is_no_longer_in_the_list(root: Client) -> None:
    token = link_in(root.post("/users/invite/", {"name": "Nina"}))
    password = "purple monkey dishwasher"
    Client().post(f"/link/{token}", {"username": "nina", "password1": password, "password2": password})
    words = text_of(root.get("/users/"))
    assert "nina" in words
    assert "Invitations" not in words
    row = AccountLink.objects.get()
    assert root.post(f"/users/invitations/{row.uid}/renew/").status_code == 404


def test_a_box_that_a_manager_may_not_tick_is_disabled_and_a_forged_form_is_refused_in_words() -> None:
    client = Client()
    client.force_login(person("max", "manage_users", "view_server"))
    strong = Group.objects.create(name="Strong")
    strong.permissions.set(catalog.permission_rows({"manage_stdio"}))
    page = client.get("/users/invite/").content.decode()
    assert re.search(r'id="permission-manage_stdio"[^>]*disabled', page)
    assert not re.search(r'id="permission-view_server"[^>]*disabled', page)
    assert re.search(rf'id="group-{strong.pk}"[^>]*disabled', page)
    assert "permission-superuser" not in page
    for forged in ({"own": ["manage_stdio"]}, {"groups": [strong.pk]}, {"superuser": "on"}):
        answer = client.post("/users/invite/", {"name": "Nina"} | forged)
        assert answer.status_code == 403
        assert "You can grant only permissions that you have" in text_of(answer)
    assert not AccountLink.objects.exists()


# --- one person ------------------------------------------------------------------------------------------------------
def test_a_persons_page_says_which_permission_comes_from_where_and_which_has_no_effect(root: Client) -> None:
    vera, group = person("vera", "call_tool", "verify_chain"), Group.objects.create(name="Night shift")
    group.permissions.set(catalog.permission_rows({"view_server", "call_tool"}))
    vera.groups.add(group)
    words = text_of(root.get(f"/users/{vera.pk}/"))
    assert "See servers See every server with its tools, sessions, logs and subscriptions. Group Night shift" in words
    assert "Group Night shift Granted directly" in words
    assert "No effect without: Read the audit log" in words


def test_saving_permissions_applies_them_and_a_second_administrator_gets_a_clear_conflict(root: Client) -> None:
    vera = person("vera", "view_server")
    page = root.get(f"/users/{vera.pk}/permissions/").content.decode()
    seen = re.search(r'name="seen" value="([0-9a-f]+)"', page)
    assert seen
    form = {"own": ["view_server", "call_tool"], "seen": seen[1]}
    assert root.post(f"/users/{vera.pk}/permissions/", form).status_code == 302
    assert catalog.own_permissions(vera) == {"view_server", "call_tool"}
    answer = root.post(f"/users/{vera.pk}/permissions/", form | {"own": []})
    assert answer.status_code == 409
    assert "changed after you opened this page" in text_of(answer)
    assert re.search(r'id="permission-call_tool"[^>]*checked', answer.content.decode()), "it shows what holds now"
    assert catalog.own_permissions(vera) == {"view_server", "call_tool"}


def test_a_manager_sees_but_cannot_change_a_person_with_more_permissions(root: Client) -> None:
    client = Client()
    client.force_login(person("max", "manage_users"))
    vera = person("vera", "manage_stdio")
    page = client.get(f"/users/{vera.pk}/")
    assert "has permissions that you don't have (Register commands)" in text_of(page)
    assert "Disable" not in text_of(page)
    for path in ("disable", "password-link", "sign-ins/end", "delete", "permissions"):
        assert client.post(f"/users/{vera.pk}/{path}/").status_code == 403, path
    assert get_user_model().objects.get(pk=vera.pk).is_active


@pytest.mark.parametrize(
    ("permissions", "words"),
    [
        ((), "Hand over or remove first: something on servers that you can"),
        (("view_server",), "Hand over or remove first: owner of 1 server."),
    ],
)
def test_a_refused_deletion_counts_only_what_the_manager_may_see(permissions: tuple[str, ...], words: str) -> None:
    client, vera = Client(), person("vera")
    client.force_login(person("max", "manage_users", *permissions))
    Server.objects.create(slug="files", name="Files", transport="stdio", owner=vera)
    assert words in text_of(client.post(f"/users/{vera.pk}/delete/", follow=True))
    assert get_user_model().objects.filter(pk=vera.pk).exists()


def test_sign_ins_are_listed_and_ended_one_by_one_and_all_at_once(root: Client) -> None:
    vera = person("vera", "view_server")
    browsers = [Client(HTTP_USER_AGENT=FIREFOX, REMOTE_ADDR=f"192.0.2.{number}") for number in range(3)]
    for browser in browsers:
        assert browser.login(username="vera", password="correct horse battery")
        browser_sessions._seen.clear()
        assert browser.get("/servers/").status_code == 200
    words = text_of(root.get(f"/users/{vera.pk}/"))
    assert words.count("Firefox on Linux") == 3
    assert "192.0.2.1" in words
    [first] = [row for row in browser_sessions.browsers(vera) if row.ip == "192.0.2.0"]
    root.post(f"/users/{vera.pk}/sign-ins/{first.id}/end/")
    assert [browser.get("/servers/").status_code for browser in browsers] == [302, 200, 200]
    root.post(f"/users/{vera.pk}/sign-ins/end/")
    assert [browser.get("/servers/").status_code for browser in browsers] == [302, 302, 302]
    assert "Not signed in anywhere" in text_of(root.get(f"/users/{vera.pk}/"))
    assert AuditEvent.objects.filter(action=AuditAction.SIGN_INS_END, actor_name="root", subject="vera").count() == 2


def test_the_identity_of_another_person_is_removed_after_a_question(root: Client) -> None:
    vera = person("vera")
    server = Server.objects.create(slug="calendar", name="Calendar", transport="stdio", command="cat")
    own = Identity.objects.create(server=server, kind="personal", name="vera", user=vera)
    Credential.objects.create(name="own", kind="bearer", owner=vera, sealed_at=timezone.now()).uses.create(identity=own)
    address = f"/users/{vera.pk}/identities/{own.uid}/remove/"
    assert f'href="{address}"' in root.get(f"/users/{vera.pk}/").content.decode()
    assert "1 credential of this person is erased. This cannot be undone." in text_of(root.get(address))
    assert Credential.objects.filter(name="own").exists(), "the page only asks"
    root.post(address)
    assert not Credential.objects.filter(name="own").exists()


def test_a_sign_in_of_another_person_is_not_ended_through_ones_own_page() -> None:
    vera, other = person("vera"), person("olga")
    mine, theirs = Client(), Client()
    mine.force_login(vera)
    theirs.force_login(other)
    [row] = browser_sessions.browsers(other)
    assert mine.post(f"/account/sign-ins/{row.id}/end/").status_code == 302
    assert theirs.get("/account/").status_code == 200


def test_the_number_of_a_sign_in_that_no_column_holds_ends_nothing(root: Client) -> None:
    vera = person("vera")
    client = Client()
    client.force_login(vera)
    for page in (f"/users/{vera.pk}/sign-ins/{2**63}/end/", f"/account/sign-ins/{2**63}/end/"):
        assert root.post(page).status_code == 302
    assert client.get("/account/").status_code == 200


def test_the_last_superuser_is_told_why_nothing_happened(root: Client) -> None:
    me = get_user_model().objects.get(username="root")
    for path in ("disable", "delete"):
        answer = root.post(f"/users/{me.pk}/{path}/", follow=True)
        assert "your own account" in text_of(answer)
    answer = root.post(f"/users/{me.pk}/permissions/", {"seen": people.mark(me)})
    assert answer.status_code == 409
    assert "your own superuser status" in text_of(answer)


def test_groups_are_added_changed_and_deleted(root: Client) -> None:
    assert root.post("/users/groups/add/", {"name": "Night shift", "own": ["call_tool"]}).status_code == 302
    group = Group.objects.get(name="Night shift")
    assert catalog.permissions_of_groups([group]) == {"call_tool"}
    assert "Call tools" in text_of(root.get("/users/groups/"))
    assert root.post("/users/groups/add/", {"name": "night SHIFT"}).status_code == 422
    form = {"name": "Day shift", "own": ["view_server"], "seen": people.group_mark(group)}
    assert root.post(f"/users/groups/{group.pk}/", form).status_code == 302
    assert root.post(f"/users/groups/{group.pk}/", form).status_code == 409
    assert root.post(f"/users/groups/{group.pk}/", form | {"seen": ""}).status_code == 409
    group.refresh_from_db()
    assert (group.name, catalog.permissions_of_groups([group])) == ("Day shift", {"view_server"})
    assert root.post(f"/users/groups/{group.pk}/delete/").status_code == 302
    assert not Group.objects.filter(name="Day shift").exists()


def test_the_references_of_a_group_are_named_before_it_is_deleted(root: Client) -> None:
    group = Group.objects.create(name="Night shift")
    address = f"/users/groups/{group.pk}/"
    assert "references" not in text_of(root.get(f"{address}delete/"))
    ReferenceGrant.objects.create(name="PROD_TOKEN", group=group)
    page = text_of(root.get(f"{address}delete/"))
    assert "Use ${PROD_TOKEN}" in page
    assert "Servers that use its references reconnect." in page
    mona = Client()
    mona.force_login(person("mona", "manage_users"))
    assert "This group has permissions that you don't have" in mona.get(address).content.decode()


def test_a_group_whose_name_another_administrator_took_in_this_moment_is_explained(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    Group.objects.create(name="Night shift")
    monkeypatch.setattr(GroupForm, "clean_name", lambda form: form.cleaned_data["name"])  # as the form found it before
    answer = root.post("/users/groups/add/", {"name": "Night shift"})
    assert answer.status_code == 422
    assert "A group with this name already exists." in text_of(answer)


# --- one's own account -----------------------------------------------------------------------------------------------
def test_everyone_sees_their_permissions_and_ends_their_other_sign_ins() -> None:
    vera = person("vera", "view_server")
    here, there = Client(HTTP_USER_AGENT=FIREFOX), Client()
    here.force_login(vera)
    there.force_login(vera)
    browser_sessions._seen.clear()
    words = text_of(here.get("/account/"))
    assert all(part in words for part in ("See servers", "This browser", "Change password"))
    assert here.post("/account/sign-ins/end/").status_code == 302
    assert there.get("/account/").status_code == 302
    assert here.get("/account/").status_code == 200


def test_the_list_of_sign_ins_of_the_sign_in_library_leads_to_ones_own_account() -> None:
    client = Client()
    client.force_login(person("vera"))
    assert client.get("/accounts/sessions/")["Location"] == "/account/"


def test_the_navigation_offers_users_only_to_those_who_manage_them(root: Client) -> None:
    client = Client()
    client.force_login(person("vera", "view_server"))
    assert 'href="/users/"' in root.get("/").content.decode()
    assert 'href="/users/"' not in client.get("/").content.decode()


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0 Safari/537.36", "Chrome on Windows"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/142.0 Safari/537.36 Edg/142.0", "Edge on Windows"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605 Version/18 Safari/605", "Safari on macOS"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18 Mobile Safari/604", "Safari on iPhone"),
        ("curl/8", "Unknown browser"),
    ],
)  # fmt: skip
def test_browsers_are_named_for_people(agent: str, words: str) -> None:
    assert browser_sessions.browser_words(agent) == words
