"""The form of a server works as a browser posts it."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.template.loader import render_to_string

from servers.audit.record import Actor
from servers.models import Server
from servers.registration import registering
from servers.registration.forms import ServerForm
from servers.registration.registering import Registration
from tests.servers.cast import CANARY, header, over_http, over_stdio, variable

pytestmark = pytest.mark.django_db
DEFAULTS = {
    "name": "Orders",
    "environment": "development",
    "era": "auto",
    "connection_policy": "always_on",
    "idle_timeout_seconds": "900",
    "connect_timeout_seconds": "30",
    "request_timeout_seconds": "60",
    "total_timeout_seconds": "1800",
}


def posted(*rows: dict[str, str], **fields: str) -> QueryDict:
    """Posted data with `rows` numbered in order, as the browser does it."""
    data = QueryDict(mutable=True)
    data.update(DEFAULTS | fields)
    data.update({"values-TOTAL_FORMS": str(len(rows)), "values-INITIAL_FORMS": "0"})
    data.update({"roots-TOTAL_FORMS": "0", "roots-INITIAL_FORMS": "0"} | fields)
    for number, row in enumerate(rows):
        data.update({f"values-{number}-{name}": value for name, value in row.items()})
    return data


def row(name: str, value: str = "", kind: str = "header", *, secret: bool = True, **more: str) -> dict[str, str]:
    return {"kind": kind, "name": name, "value": value, **({"secret": "on"} if secret else {}), **more}


@pytest.fixture
def stored(admin: Any, actor: Actor) -> Server:
    values = [header(), header("X-Team", "ops", secret=False)]
    return registering.register(actor, admin, over_http(values=values))


def filled(admin: Any, server: Server | None, *rows: dict[str, str], **fields: str) -> ServerForm:
    form = ServerForm(posted(*rows, **fields), user=admin, server=server)
    form.is_valid()
    return form


def data_of(form: ServerForm) -> Registration:
    assert form.is_valid(), (form.errors, form.values.errors)
    return Registration.of(form.registration_data())


def test_what_was_typed_becomes_a_registration(admin: Any) -> None:
    form = ServerForm(
        posted(
            row("Authorization", CANARY),
            row("X-Team", "ops", secret=False),
            row("", "", secret=True),
            row("X-Gone", "x", DELETE="on"),
            transport="streamable_http",
            url="https://x.example/mcp",
            tags="a, b,,a",
            slug="Orders-API",
            owner=str(admin.pk),
        ),
        user=admin,
    )
    data = data_of(form)
    assert (data.slug, data.tags, data.owner_id, data.url) == (
        "orders-api",
        ["a", "b"],
        admin.pk,
        "https://x.example/mcp",
    )
    assert [(v.name, v.secret, v.text()) for v in data.values] == [
        ("Authorization", True, CANARY),
        ("X-Team", False, "ops"),
    ]


@pytest.mark.parametrize(
    ("typed", "transport", "command", "arguments"),
    [
        ({"url": "https://x.example/mcp"}, "auto_http", "", []),
        ({"url": "wss://x.example/mcp"}, "websocket", "", []),
        ({"command": "npx -y 'a b'"}, "stdio", "npx", ["-y", "a b"]),
        ({"command": "npx", "arguments": "-y\r\na b\r\n\r\n"}, "stdio", "npx", ["-y", "a b"]),
        ({"url": "uvx server"}, "stdio", "uvx", ["server"]),
    ],
)
def test_the_transport_is_chosen_by_what_was_entered_and_said(
    typed: dict[str, str], transport: str, command: str, arguments: list[str], admin: Any
) -> None:
    form = filled(admin, None, **typed)
    data = data_of(form)
    assert (str(data.transport), data.command, data.arguments) == (transport, command, arguments)
    assert "Detected from your input" in form.notes_for_user[0]


def test_a_command_line_pasted_whole_is_split_and_the_form_says_so(admin: Any) -> None:
    form = filled(admin, None, transport="stdio", command="npx -y server")
    assert (data_of(form).command, data_of(form).arguments) == ("npx", ["-y", "server"])
    assert "split" in form.notes_for_user[0]


def test_a_command_with_blanks_and_arguments_of_its_own_is_left_alone(admin: Any) -> None:
    form = filled(admin, None, transport="stdio", command="/opt/My App/run", arguments="--stdio")
    assert data_of(form).command == "/opt/My App/run"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "url"),
        ({"transport": "stdio"}, "command"),
        ({"transport": "streamable_http", "url": "https://u:p@x/"}, "url"),
        ({"transport": "auto_http", "url": "wss://x/"}, "url"),
        ({"transport": "http_sse", "url": "x/sse"}, "url"),
        ({"transport": "websocket", "url": "https://x/"}, "url"),
        ({"command": "npx 'open"}, "command"),
        ({"url": "https://x/", "slug": "add"}, "slug"),
        ({"url": "https://x/", "name": ""}, "name"),
        ({"url": "https://x/", "total_timeout_seconds": "5"}, "total_timeout_seconds"),
        ({"url": "https://x/", "idle_timeout_seconds": "0"}, "idle_timeout_seconds"),
        ({"transport": "stdio", "command": "a", "working_directory": "b"}, "working_directory"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(fields: dict[str, str], field: str, admin: Any) -> None:
    form = filled(admin, None, **fields)
    assert not form.is_valid()
    assert field in form.errors


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (row("Authorization", ""), "value"),
        (row("", "value"), "name"),
        (row("Host", "x"), "name"),
        (row("X-A", "ä", secret=False), "value"),
        (row("TOKEN", "x", kind="environment"), "kind"),
    ],
)
def test_what_is_wrong_with_a_row_is_said_at_the_row(bad: dict[str, str], field: str, admin: Any) -> None:
    form = filled(admin, None, bad, url="https://x/")
    assert form.refused
    assert field in form.values.forms[0].errors


def test_a_header_that_is_given_twice_is_refused_in_any_case(admin: Any) -> None:
    form = filled(admin, None, row("X-A", "1"), row("x-a", "2"), url="https://x/")
    assert "name" in form.values.forms[1].errors


def test_a_row_without_a_valid_name_has_no_name_twice(admin: Any) -> None:
    form = filled(admin, None, row("X Bad Name", "one", secret=False), row("", "two"))
    assert form.values.forms[1].errors["name"] == ["Enter a name."]


def test_the_summary_leads_to_each_wrong_field_of_the_parts(admin: Any) -> None:
    rows = {"roots-TOTAL_FORMS": "1", "roots-0-uri": "https://elsewhere.example/", "limits-depth": "3"}
    form = filled(
        admin,
        None,
        row("X-Team", "ops", secret=False),
        row("X Bad", "1"),
        row("", "", DELETE="on"),
        url="https://x.example/mcp",
        **rows,
    )
    assert not form.is_valid()
    assert [(target, name) for target, name, _ in form.part_errors] == [
        ("id_values-1-name", "Header or variable 2, name"),
        ("id_roots-0-uri", "Root 1, folder"),
        ("id_limits-depth", "Nesting"),
    ]
    page = render_to_string("kit/_form_errors.html", {"form": form})
    assert page.count("Correct ") == 1
    assert "Nesting: Enter a number between 8 and 256." in page


def test_a_stored_secret_never_comes_back_and_an_empty_box_keeps_it(admin: Any, stored: Server) -> None:
    form = ServerForm(user=admin, server=stored)
    page = form.as_p() + "".join(one.as_p() for one in form.values)
    assert CANARY not in page
    assert "Leave empty to keep" in page
    assert 'value="ops"' in page
    same = row("Authorization"), row("X-Team", "ops", secret=False)
    data = data_of(filled(admin, stored, *same, transport="streamable_http", url=stored.url))
    assert [(v.name, v.value) for v in data.values] == [("Authorization", None), ("X-Team", "ops")]


def test_a_secret_that_was_just_typed_is_not_sent_back_with_an_error(admin: Any, stored: Server) -> None:
    form = filled(admin, stored, row("X-Token", CANARY), name="", url=stored.url)
    assert CANARY not in "".join(one.as_p() for one in form.values)
    assert "Enter new secrets again" in form.notes_for_user[-1]


@pytest.mark.parametrize("shown_again", [{"_add_row": "1"}, {"_add_root": "1"}, {"propose": True}])
def test_a_form_that_is_shown_again_before_it_is_saved_says_that_a_secret_is_gone(admin: Any, shown_again: Any) -> None:
    def form(secret: str) -> ServerForm:
        fields = {name: value for name, value in shown_again.items() if name != "propose"}
        data = posted(row("API_TOKEN", secret, "environment"), command="uv --directory /srv/tool run tool", **fields)
        return ServerForm(data, user=admin, propose="propose" in shown_again)

    made = form(CANARY)
    assert made.adding_row or made.proposing
    assert CANARY not in "".join(one.as_p() for one in made.values)
    assert "Enter new secrets again" in made.notes_for_user[-1]
    assert not any("secrets" in note for note in form("").notes_for_user)


def test_a_name_has_single_blanks(admin: Any) -> None:
    assert data_of(filled(admin, None, name=" My  Server ", url="https://x.example/mcp")).name == "My Server"


def test_a_stored_secret_cannot_become_a_plain_value_unseen(admin: Any, stored: Server) -> None:
    form = filled(admin, stored, row("Authorization", "", secret=False), url=stored.url)
    assert "value" in form.values.forms[0].errors


def test_a_changed_origin_asks_for_the_secret_again(admin: Any, stored: Server) -> None:
    form = filled(admin, stored, row("Authorization"), url="https://evil.example/mcp")
    assert "another server" in str(form.values.forms[0].errors["value"])
    assert data_of(filled(admin, stored, row("Authorization", "new"), url="https://evil.example/mcp"))


def test_adding_a_row_is_no_submission_and_shows_no_error(admin: Any) -> None:
    form = ServerForm(posted(row("X-A", "1", secret=False), name="", _add_row="1"), user=admin)
    assert form.adding_row
    assert not form.is_valid()
    assert not form.errors
    assert [one.errors for one in form.values] == [{}, {}]
    assert form.values.forms[0]["value"].value() == "1"


@pytest.mark.parametrize("count", ["", "²", "9" * 5000])
def test_a_row_is_added_although_the_count_of_rows_is_no_number(admin: Any, count: str) -> None:
    data = posted(row("X-A", "1", secret=False), _add_row="1")
    data["values-TOTAL_FORMS"] = count
    assert [len(ServerForm(data, user=admin).values)] == [1]


def test_blank_rows_are_secret_and_of_the_kind_of_the_transport(admin: Any, actor: Actor) -> None:
    assert ServerForm(user=admin).values.forms[-1]["kind"].value() == "header"
    local = registering.register(actor, admin, over_stdio())
    values = ServerForm(user=admin, server=local).values
    for blank in (values.forms[-1], values.empty_form):
        assert (blank["kind"].value(), blank["secret"].value()) == ("environment", True)


def test_the_form_of_a_stored_server_saves_unchanged(admin: Any, actor: Actor, stored: Server) -> None:
    form = ServerForm(user=admin, server=stored)
    again = {name: str(form[name].value() or "") for name in form.fields}
    rows = [
        {name: str(one[name].value() or "") for name in ("kind", "name", "value")} for one in form.values.initial_forms
    ]
    rows[0]["secret"] = "on"
    resaved = data_of(filled(admin, stored, *rows, **again))
    registering.change(actor, admin, stored, resaved, stored.version)
    assert Server.objects.get().url == stored.url


def test_what_the_domain_refuses_is_shown_at_its_field(admin: Any) -> None:
    form = filled(admin, None, url="https://x/")
    form.refuse(ValidationError({"slug": "taken", "values": "again", "owner_id": "gone"}))
    form.refuse(ValidationError("sealed"))
    assert (form.errors["slug"], form.errors["owner"]) == (["taken"], ["gone"])
    assert form.non_field_errors() == ["again", "sealed"]


def test_a_person_who_is_gone_stays_the_owner_of_the_form(admin: Any, actor: Actor, operator: Any) -> None:
    server = registering.register(actor, admin, over_http(owner_id=operator.pk))
    operator.is_active = False
    operator.save()
    assert operator in ServerForm(user=admin, server=server).fields["owner"].queryset
    assert operator not in ServerForm(user=admin).fields["owner"].queryset


SCRIPT = "set -e\nexport LEVEL=1\n\nexec files"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_argument_of_several_lines_or_none_stays_one_where_it_is_left_as_it_is(
    end: str, admin: Any, actor: Actor
) -> None:
    """The field has one argument per line, and browsers post CRLF."""
    given = over_stdio(command="sh", arguments=["-c", SCRIPT, "", "--last"])
    server = registering.register(actor, admin, given)
    shown = str(ServerForm(user=admin, server=server)["arguments"].value())
    stdio = {"transport": "stdio", "command": "sh", "url": "", "name": "Files"}
    assert data_of(filled(admin, server, **stdio, arguments=shown.replace("\n", end))).arguments == given.arguments
    more = data_of(filled(admin, server, **stdio, arguments=f"{shown}\n--more".replace("\n", end)))
    assert more.arguments == ["-c", SCRIPT, "--last", "--more"]
    other = data_of(filled(admin, server, **stdio, arguments="-c\nset -e"))
    assert other.arguments == ["-c", "set -e"]


def test_a_program_whose_path_has_a_blank_stays_one_program_when_it_is_saved(admin: Any, actor: Actor) -> None:
    stdio = {"transport": "stdio", "url": "", "name": "Files"}
    first = data_of(filled(admin, None, **stdio, command="'/opt/my srv/run'"))
    assert (first.command, first.arguments) == ("/opt/my srv/run", [])
    server = registering.register(actor, admin, first)
    again = data_of(filled(admin, server, **stdio, command="/opt/my srv/run", description="New"))
    assert (again.command, again.arguments) == ("/opt/my srv/run", [])
    other = data_of(filled(admin, server, **stdio, command="/opt/run --fast"))
    assert (other.command, other.arguments) == ("/opt/run", ["--fast"])


PEM = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("text", [PEM, "\nfirst line empty", "of\r\nWindows", "one line\n"])
def test_the_lines_of_a_plain_variable_stay_as_they_are_when_something_else_is_saved(
    text: str, admin: Any, actor: Actor
) -> None:
    values = [variable("CA_PEM", text, secret=False), variable("LEVEL", "debug", secret=False)]
    server = registering.register(actor, admin, over_stdio(values=values))
    form = ServerForm(user=admin, server=server)
    assert [one["value"].as_widget().split()[0] for one in form.values.initial_forms] == ["<textarea", "<input"]
    shown = [str(one["value"].value()) for one in form.values.initial_forms]
    ends = ["\r\n".join(one.splitlines() + [""] * one.endswith("\n")) for one in shown]
    stdio = {"transport": "stdio", "command": "npx", "url": "", "arguments": "-y\nfiles"}
    names = ("CA_PEM", "LEVEL")
    rows = [row(name, end, "environment", secret=False) for name, end in zip(names, ends, strict=True)]
    data = data_of(filled(admin, server, *rows, **stdio, description="New"))
    assert [value.value for value in data.values] == [text, "debug"]


def test_a_variable_of_several_lines_is_stored_with_single_line_ends(admin: Any) -> None:
    new = row("KEY_PEM", PEM.replace("\n", "\r\n"), "environment")
    data = data_of(filled(admin, None, new, transport="stdio", command="x"))
    assert [value.text() for value in data.values] == [PEM]
    refused = filled(admin, None, row("X-A", "a\r\nb", secret=False), url="https://x.example/mcp")
    assert "must be one line" in str(refused.values.forms[0].errors["value"])
    assert refused.values.forms[0]["value"].as_widget().startswith("<textarea")
