"""The sections of a server's form besides its connection work: era, roots, limits."""

from typing import Any

import pytest
from django.conf import settings

from servers.audit.record import Actor
from servers.enums import EraChoice, TransportKind
from servers.models import Server
from servers.registration import registering
from servers.registration.forms import ServerForm
from servers.validators import LIMITS
from tests.servers.cast import over_http
from tests.servers.test_forms import data_of, posted

pytestmark = pytest.mark.django_db
URL = {"url": "https://x.example/mcp"}


def roots(*rows: tuple[str, str], **more: str) -> dict[str, str]:
    fields = {"roots-TOTAL_FORMS": str(len(rows))}
    for number, (uri, name) in enumerate(rows):
        fields |= {f"roots-{number}-uri": uri, f"roots-{number}-name": name}
    return fields | more


def form_of(admin: Any, server: Server | None = None, **fields: str) -> ServerForm:
    return ServerForm(posted(**(URL | fields)), user=admin, server=server)


@pytest.fixture
def stored(admin: Any, actor: Actor) -> Server:
    found = [{"uri": "file:///srv/data", "name": "Data"}, {"uri": "file:///srv/more", "name": ""}]
    return registering.register(actor, admin, over_http(roots=found, limits={"depth": 32, "message_bytes": 65536}))


# --- choices -----------------------------------------------------------------------------------------------------------
def test_every_choice_of_transport_and_era_says_when_to_use_it(admin: Any) -> None:
    form = ServerForm(user=admin)
    assert [value for value, _, words in form.transport_uses() if words] == ["", *TransportKind.values]
    assert [value for value, _, words in form.era_uses() if words] == EraChoice.values


def test_headers_belong_to_every_transport_with_a_url(admin: Any) -> None:
    row = {"kind": "header", "name": "X-Team", "value": "ops"}
    for transport, url in (("http_sse", "https://x/sse"), ("auto_http", "https://x/"), ("websocket", "wss://x/ws")):
        form = ServerForm(posted(row, transport=transport, url=url), user=admin)
        assert [value.name for value in data_of(form).values] == ["X-Team"]


# --- roots -------------------------------------------------------------------------------------------------------------
def test_roots_are_read_from_their_rows_and_a_plain_path_becomes_a_uri(admin: Any) -> None:
    rows = roots(("file:///srv/data", "Data"), ("/home/ada/My files", ""), ("", ""))
    assert data_of(form_of(admin, **rows)).roots == [
        {"uri": "file:///srv/data", "name": "Data"},
        {"uri": "file:///home/ada/My%20files", "name": ""},
    ]


def test_stored_roots_are_in_the_form_with_a_blank_row_after_them(admin: Any, stored: Server) -> None:
    form = ServerForm(user=admin, server=stored)
    assert [row["uri"].value() or "" for row in form.roots] == ["file:///srv/data", "file:///srv/more", ""]


def test_a_root_whose_remove_box_is_ticked_is_gone(admin: Any, stored: Server) -> None:
    rows = roots(("file:///srv/data", "Data"), ("file:///srv/more", ""), **{"roots-0-DELETE": "on"})
    assert [root["uri"] for root in data_of(form_of(admin, stored, **rows)).roots] == ["file:///srv/more"]


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("https://x.example/", "file URI"),
        ("file://srv/data", "three slashes"),
        ("srv/data", "file URI"),
        ("file:///srv/my data", "%20"),
        ("file:///srv/%zz", "%20"),
        ("file:///srv/dätä", "%20"),
        ("file:///srv/../etc", ".."),
        ("file:///srv/%2e%2e/etc", ".."),
        ("file:///srv?x=1", "cannot contain ?"),
    ],
)
def test_a_root_that_is_no_plain_folder_is_refused_at_its_row(uri: str, words: str, admin: Any) -> None:
    form = form_of(admin, **roots((uri, "")))
    assert not form.is_valid()
    assert words in str(form.roots.forms[0].errors["uri"])


def test_a_name_without_a_folder_and_a_folder_given_twice_are_refused(admin: Any) -> None:
    form = form_of(admin, **roots(("", "Data"), ("/srv", ""), ("file:///srv", "")))
    assert not form.is_valid()
    assert ["uri" in row.errors for row in form.roots.forms] == [True, False, True]


def test_more_than_fifty_roots_are_refused(admin: Any) -> None:
    form = form_of(admin, **roots(*((f"/srv/{number}", "") for number in range(51))))
    assert not form.is_valid()
    assert "50" in str(form.roots.non_form_errors())


def test_add_root_without_script_gives_a_row_more_and_no_errors(admin: Any) -> None:
    form = form_of(admin, url="", **roots(("srv", "")), _add_root="1")
    assert not form.is_valid()
    assert (len(form.roots.forms), len(form.values.forms), form.errors, form.roots.forms[0].errors) == (2, 0, {}, {})


# --- limits ------------------------------------------------------------------------------------------------------------
def test_an_empty_limit_leaves_the_default_and_a_filled_one_is_stored_in_bytes(admin: Any) -> None:
    data = data_of(form_of(admin, **{"limits-message_bytes": "2048", "limits-depth": "", "limits-rounds": "3"}))
    assert data.limits == {"message_bytes": 2048 * 1024, "rounds": 3}


def test_limits_show_what_is_set_and_the_instances_default_as_placeholder(admin: Any, stored: Server) -> None:
    fields = ServerForm(user=admin, server=stored).limits
    assert (fields["message_bytes"].value(), fields["depth"].value()) == (64, 32)
    shown = {name: int(fields.fields[name].widget.attrs["placeholder"].replace(",", "")) for name in LIMITS}
    assert shown["inflated_bytes"] == settings.LIMITS["inflated_bytes"] // 1024
    assert shown["rounds"] == settings.LIMITS["rounds"]


@pytest.mark.parametrize("number", ["0", "-1", "999999999999", "1.5", "x"])
def test_a_limit_out_of_its_bounds_is_refused_and_the_section_opens(number: str, admin: Any) -> None:
    form = form_of(admin, **{"limits-depth": number})
    assert not form.is_valid()
    assert "depth" in form.limits.errors
    assert form.limits.opened


def test_every_limit_has_a_default_within_its_bounds() -> None:
    assert LIMITS.keys() == settings.LIMITS.keys()
    assert [limit.name for limit in LIMITS.values() if not limit.least <= limit.default <= limit.most] == []
