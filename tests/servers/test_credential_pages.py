"""The credential pages show a credential's full status but never its value."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit.record import Actor
from servers.credentials.forms.credential import ENTERED, CredentialForm
from servers.enums import AuditAction
from servers.models import AuditEvent, Credential, CredentialUse, Server
from servers.registration import registering
from tests.servers.cast import header, over_http, over_stdio
from tests.servers.conftest import person
from tests.sessions.test_adding_pages import Fields

pytestmark = pytest.mark.django_db
TOKEN = "canary-page-token-5f"
URL = "https://mcp.example.com/mcp"


@pytest.fixture
def browser_of(admin: Any) -> Callable[[Any], Client]:
    def signed_in(user: Any) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return signed_in


@pytest.fixture
def ada(browser_of: Callable[[Any], Client], admin: Any) -> Client:
    return browser_of(admin)


@pytest.fixture
def server(admin: Any, actor: Actor) -> Server:
    return registering.register(actor, admin, over_http(url=URL, values=[header("X-Old", "canary-page-row-77")]))


def add(client: Client, kind: str = "bearer", query: str = "", **fields: str) -> Any:
    data = {"name": "Orders key", "url": URL, "token": TOKEN} | fields
    return client.post(f"/credentials/add/?kind={kind}{query}", data, follow=True)


def test_a_credential_is_added_used_replaced_and_deleted_without_being_shown(ada: Client, server: Server) -> None:
    pages = [add(ada, query=f"&server={server.slug}")]
    row = Credential.objects.get()
    assert CredentialUse.objects.get().identity.server == server
    replaced = ada.post(f"/credentials/{row.uid}/replace/", {"token": "canary-page-next-88"}, follow=True)
    paths = (
        "/credentials/",
        f"/credentials/{row.uid}/",
        f"/credentials/{row.uid}/delete/",
        f"/servers/{server.slug}/settings/",
    )
    pages += [ada.get(path) for path in paths]
    pages += [replaced, ada.post(f"/credentials/{row.uid}/replace/", {"token": "two words-99"})]
    text = "".join(page.content.decode() for page in pages)
    assert all(canary not in text for canary in (TOKEN, "canary-page-next-88", "canary-page-row-77", "two words-99"))
    assert server.name in pages[3].content.decode(), "who depends on it is said before it is deleted"
    assert ada.post(f"/credentials/{row.uid}/delete/").status_code == 302
    assert not Credential.objects.exists()
    actions = set(AuditEvent.objects.values_list("action", flat=True))
    assert {AuditAction.CREDENTIAL_REPLACE, AuditAction.CREDENTIAL_DELETE, AuditAction.CREDENTIAL_ATTACH} <= actions


@pytest.mark.parametrize("kind", ["bearer", "header", "basic", "environment", "certificate", "nonsense"])
def test_each_kind_has_a_form_of_its_own_boxes(ada: Client, kind: str) -> None:
    page = ada.get(f"/credentials/add/?kind={kind}")
    assert page.status_code == 200
    assert ('name="url"' in page.content.decode()) is (kind != "environment")


def test_what_was_refused_comes_back_without_the_value(ada: Client) -> None:
    page = add(ada, url="http://mcp.example.com/")
    assert page.status_code == 422
    assert "plain http" in page.content.decode()
    assert TOKEN not in page.content.decode()
    assert not Credential.objects.exists()


def test_a_refused_private_key_does_not_come_back(ada: Client) -> None:
    canary = "canary-page-key-66"
    pem = f"-----BEGIN PRIVATE KEY-----\n{canary}\n-----END PRIVATE KEY-----"
    page = add(ada, "certificate", certificate="no certificate", key=pem)
    assert page.status_code == 422
    assert "no certificate" in page.content.decode(), "what is no secret need not be entered again"
    assert canary not in page.content.decode()


def test_who_may_see_credentials_sees_no_button_and_gets_none_by_hand(
    ada: Client, browser_of: Callable[[Any], Client], server: Server
) -> None:
    add(ada)
    row = Credential.objects.get()
    viewer = browser_of(person("vic", "view_server", "view_credential", "change_server"))
    assert "Replace" not in viewer.get(f"/credentials/{row.uid}/").content.decode()
    stranger = browser_of(person("sam", "view_server", "change_server"))
    for client, path in (
        (viewer, f"/credentials/{row.uid}/replace/"),
        (viewer, f"/credentials/{row.uid}/delete/"),
        (viewer, "/credentials/add/"),
        (stranger, f"/credentials/{row.uid}/delete/"),
    ):
        assert client.post(path, {"token": "x"}).status_code == 403
    assert viewer.post(f"/credentials/for/{server.slug}/", {"credential": str(row.uid)}).status_code == 403
    for path in ("/credentials/", f"/credentials/{row.uid}/"):
        assert stranger.get(path).status_code == 403
    assert not CredentialUse.objects.exists()


def test_a_server_that_one_may_not_see_is_not_named(
    ada: Client, browser_of: Callable[[Any], Client], server: Server
) -> None:
    add(ada, query=f"&server={server.slug}")
    blind = browser_of(person("bea", "view_credential"))
    text = blind.get("/credentials/").content.decode()
    assert "Orders key" in text
    assert server.slug not in text


def test_the_name_of_a_server_leads_where_its_reader_may_go(
    ada: Client, browser_of: Callable[[Any], Client], server: Server
) -> None:
    add(ada, query=f"&server={server.slug}")
    row = Credential.objects.get()
    viewer = browser_of(person("vic", "view_server", "view_credential", "manage_credential"))
    for path in ("/credentials/", f"/credentials/{row.uid}/", f"/credentials/{row.uid}/delete/"):
        assert f'href="/servers/{server.slug}/settings/"' in ada.get(path).content.decode()
        shown = viewer.get(path).content.decode()
        assert f'href="/servers/{server.slug}/tools/"' in shown
        assert "/settings/" not in shown


# --- another server has the short name ---------------------------------------------------------------------------------
def test_a_secret_for_a_deleted_server_is_not_given_to_the_one_that_has_its_short_name(
    ada: Client, admin: Any, actor: Actor, server: Server
) -> None:
    address = f"/credentials/add/?kind=bearer&server={server.slug}"
    fields = Fields(ada.get(address).content.decode()).found
    server.delete()
    other = registering.register(actor, admin, over_http(url=URL, slug=server.slug))
    refused = ada.post(address, fields | {"name": "Orders key", "token": TOKEN})
    assert (refused.status_code, "Nothing was changed." in refused.content.decode()) == (409, True)
    assert not Credential.objects.exists()
    add(ada)
    chosen = {"credential": str(Credential.objects.get().uid)}
    assert ada.post(f"/credentials/for/{other.slug}/", chosen | {"uid": fields["uid"]}).status_code == 409
    assert not CredentialUse.objects.exists()
    ada.post(f"/credentials/for/{other.slug}/", chosen | {"uid": str(other.uid)})
    assert CredentialUse.objects.get().identity.server == other


def test_a_secret_reaches_a_server_that_was_renamed_meanwhile(
    ada: Client, admin: Any, actor: Actor, server: Server
) -> None:
    address = f"/credentials/add/?kind=bearer&server={server.slug}"
    fields = Fields(ada.get(address).content.decode()).found | {"name": "Orders key", "token": TOKEN}
    Server.objects.filter(pk=server.pk).update(slug="orders-old")
    registering.register(actor, admin, over_http(url=URL, slug=server.slug))
    assert ada.post(address, fields).url == "/servers/orders-old/settings/"
    assert CredentialUse.objects.get().identity.server == server


def test_every_form_of_the_credentials_of_a_server_names_it(ada: Client, server: Server) -> None:
    add(ada, query=f"&server={server.slug}")
    add(ada, name="Another")
    page = ada.get(f"/servers/{server.slug}/settings/").content.decode()
    forms = [one.partition("</form>")[0] for one in page.split("<form") if 'action="/credentials/for/' in one]
    assert len(forms) == 2
    assert all(f'name="uid" value="{server.uid}"' in one for one in forms)
    assert Fields(ada.get(f"/credentials/for/{server.slug}/issuer/").content.decode()).found["uid"] == str(server.uid)


def test_those_that_need_someone_are_first(ada: Client, server: Server) -> None:
    add(ada, name="A good one")
    add(ada, name="B failed")
    add(ada, name="C expired")
    Credential.objects.filter(name="B failed").update(refresh_fault="invalid_grant")
    Credential.objects.filter(name="C expired").update(expires_at=timezone.now() - timedelta(days=1))
    text = ada.get("/credentials/").content.decode()
    places = [text.index(word) for word in ("B failed", "C expired", "A good one", "X-Old")]
    assert places == sorted(places)
    assert all(word in text for word in ("Sign in again", "Expired", "Not used", "In use"))


def test_a_moved_server_says_that_its_credential_is_not_sent(ada: Client, admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(url=URL))
    add(ada, query=f"&server={server.slug}")
    registering.change(actor, admin, server, over_http(url="https://elsewhere.example/"), server.version)
    assert "Not sent: server address changed" in ada.get(f"/servers/{server.slug}/settings/").content.decode()
    assert "Address changed" in ada.get("/credentials/").content.decode()


def test_plain_http_is_marked_on_the_servers_page(ada: Client, admin: Any, actor: Actor) -> None:
    plain = registering.register(actor, admin, over_http(name="Plain", url="http://127.0.0.1:9/"))
    local = registering.register(actor, admin, over_stdio(name="Local"))
    assert "Not encrypted" in ada.get(f"/servers/{plain.slug}/settings/").content.decode()
    assert "Not encrypted" not in ada.get(f"/servers/{local.slug}/settings/").content.decode()


@pytest.mark.parametrize("count", [1, 3])
def test_the_board_takes_the_same_queries_for_any_number_of_rows(
    ada: Client, server: Server, count: int, django_assert_num_queries: Any
) -> None:
    for number in range(count):
        add(ada, name=f"Key {number}")
    ada.get("/credentials/")
    with django_assert_num_queries(9):
        ada.get("/credentials/")


@pytest.mark.parametrize("kind", [kind.value for kind in ENTERED])
def test_no_box_of_a_refused_form_comes_back_with_what_is_secret(kind: str) -> None:
    """Certificates and their authorities are not checked, because they are public."""
    boxes = CredentialForm(kind).fields
    filled = CredentialForm(kind, dict.fromkeys(boxes, "canary-of-a-form"))
    secret = boxes.keys() & {"token", "value", "password", "secret", "key"}
    assert secret
    assert [name for name in secret if "canary-of-a-form" in str(filled[name])] == []
