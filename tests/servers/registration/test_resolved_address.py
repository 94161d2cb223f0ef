"""References in arguments, working directory and URL resolve for a connection only, never where no secret may be."""

import json
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from django.core.exceptions import ValidationError

from servers.audit.record import Actor
from servers.configuration import Registration, ValueInput
from servers.credentials import authorizations, vault
from servers.credentials.kinds import Parts
from servers.credentials.reference_grants import ALL
from servers.credentials.references import ReferenceMissing
from servers.enums import CredentialKind, TransportKind, ValueKind
from servers.models import Server
from servers.registration import registering
from servers.registration.drafts import open_draft
from servers.registration.exporting import Form, export
from servers.registration.importing.document import read
from servers.registration.importing.entries import parse
from servers.registration.resolved_address import reached
from servers.registration.resolved_values import NotLaunchable, draft_launch_values, launch_values
from servers.secret import Secret
from servers.validators import secret_arguments, validate_url
from tests.servers.cast import create_draft, over_http, over_stdio

VALUE = "canary/arg & 91"


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_KEY", VALUE)
    monkeypatch.setenv("MCP_FOLDER", "/srv/data")


def stored(**fields: Any) -> Server:
    return Server(transport=TransportKind.STDIO, command="x", **fields)


def test_arguments_and_folder_are_resolved_and_what_was_put_in_is_secret() -> None:
    found = reached(
        stored(arguments=["--key=${MCP_KEY}", "$${MCP_KEY}", "plain"], working_directory="${MCP_FOLDER}/in"),
        ALL,
    )
    assert found.arguments == (f"--key={VALUE}", "${MCP_KEY}", "plain")
    assert found.working_directory == "/srv/data/in"
    assert [secret.reveal() for secret in found.secrets] == [VALUE, "/srv/data"]
    assert VALUE not in repr(found)


def test_a_value_in_a_url_is_encoded_and_opens_no_other_part_of_it() -> None:
    found = reached(over_http(url="https://mcp.example.com/${MCP_FOLDER}/mcp?key=${MCP_KEY}&b=1"), ALL)
    key, folder = quote(VALUE, safe=""), quote("/srv/data", safe="")
    assert found.url == f"https://mcp.example.com/{folder}/mcp?key={key}&b=1"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (stored(arguments=["a", "${MCP_NONE}"]), "Argument 2: The worker has no variable MCP_NONE"),
        (stored(working_directory="${PATH}"), r"Working directory: \$\{PATH\} is not available"),
        (stored(working_directory="${MCP_KEY}"), "not resolve to an absolute path"),
        (over_http(url="https://x.example/${MCP_NONE}"), "URL: The worker has no variable MCP_NONE"),
    ],
    ids=["argument", "not offered", "no path", "url"],
)
def test_a_missing_reference_names_its_place(source: Server | Registration, words: str) -> None:
    with pytest.raises(ReferenceMissing, match=words):
        reached(source, ALL)


@pytest.mark.parametrize(
    "url",
    [
        "https://${MCP_HOST}/mcp",
        "https://x.${MCP_HOST}.example/mcp",
        "https://x.example:${MCP_PORT}/mcp",
        "${MCP_SCHEME}://x.example/mcp",
        "${MCP_BASE}/mcp",
        "https://x.example${file:/run/secrets/x}/mcp",
        "https://${MCP_USER}@x.example/mcp",
    ],
)
def test_a_reference_in_scheme_host_or_port_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        validate_url(url)


def test_a_reference_before_the_path_is_refused_with_words() -> None:
    with pytest.raises(ValidationError, match="allowed only in the path and query"):
        validate_url("https://${MCP_HOST}/mcp")


@pytest.mark.django_db
def test_a_url_with_a_reference_carries_a_secret(admin: Any, actor: Actor) -> None:
    with pytest.raises(ValidationError, match="plain http"):
        registering.register(actor, admin, over_http(url="http://mcp.example.com/${MCP_KEY}"))


@pytest.mark.django_db
def test_a_launch_and_a_draft_are_reached_with_their_values(admin: Any, actor: Actor) -> None:
    data = over_stdio(arguments=["${MCP_KEY}"])
    found = launch_values(registering.register(actor, admin, data))
    tried = draft_launch_values(open_draft(create_draft(actor, admin, data)), user=admin)
    assert found.reached.arguments == tried.reached.arguments == (VALUE,)
    assert [secret.reveal() for secret in found.secrets] == [VALUE]
    with pytest.raises(NotLaunchable) as refused:
        draft_launch_values(over_stdio(arguments=["${MCP_NONE}"]), user=admin)
    assert refused.value.fault == "reference_missing"


@pytest.mark.django_db
def test_no_one_signs_in_to_an_address_that_holds_a_reference(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(url="https://mcp.example.com/${MCP_KEY}"))
    with pytest.raises(ValidationError, match="cannot contain a reference"):
        authorizations.begin(actor, admin, server, "browser")
    details = {"client": "robot", "issuer": "https://login.example.com"}
    parts = Parts(CredentialKind.SERVICE_ACCOUNT, details, {"secret": Secret("canary-robot"), "key": Secret("")})
    made = vault.create(actor, admin, "Robot", parts, "https://mcp.example.com")
    vault.attach(actor, admin, server, made)
    with pytest.raises(NotLaunchable, match="cannot contain a reference"):
        launch_values(server)


# --- import and export -------------------------------------------------------------------------------------------------
RAW = {
    "command": "uvx",
    "args": ["serve", "--token", "${env:MCP_KEY}", "--root=${file:/run/secrets/root}"],
    "cwd": "${MCP_FOLDER:-/tmp}",
}


def entry_of(raw: dict[str, Any]) -> Any:
    document = read(json.dumps({"mcpServers": {"x": raw}}))
    return parse(document, *document.servers[0])


def test_an_import_keeps_references_instead_of_asking() -> None:
    entry = entry_of(RAW)
    assert (entry.problems, entry.needs) == ((), ())
    assert entry.registration.arguments == ["serve", "--token", "${MCP_KEY}", "--root=${file:/run/secrets/root}"]
    assert entry.registration.working_directory == "${MCP_FOLDER}"
    assert [note for note in entry.notes if "default of ${MCP_FOLDER}" in note]


def test_a_reference_in_the_host_of_a_url_is_asked_for_and_one_in_its_path_is_kept() -> None:
    entry = entry_of({"url": "https://${MCP_HOST}/${MCP_TENANT}/mcp?key=${env:MCP_KEY}"})
    assert [(need.key, need.required) for need in entry.needs] == [("MCP_HOST", True)]
    assert entry.registration.url == "https://${MCP_HOST}/${MCP_TENANT}/mcp?key=${MCP_KEY}"


@pytest.mark.django_db
def test_an_export_writes_references_as_they_are_and_vs_code_in_its_spelling(admin: Any, actor: Actor) -> None:
    data = over_stdio(arguments=["--token", "${MCP_KEY}"], working_directory="${MCP_FOLDER}")
    server = registering.register(actor, admin, data)
    ours, theirs = export([server]), export([server], Form.VS_CODE)
    assert '"--token",\n        "${MCP_KEY}"' in ours
    assert "${env:MCP_KEY}" in theirs
    assert "${env:MCP_FOLDER}" in theirs
    again = read(ours)
    registered = parse(again, *again.servers[0]).registration
    assert registered is not None
    assert (registered.arguments, registered.working_directory) == (["--token", "${MCP_KEY}"], "${MCP_FOLDER}")


def test_only_what_is_beside_a_reference_may_be_a_secret_in_clear() -> None:
    assert (
        secret_arguments(["--token", "${MCP_KEY}", "--api-key=${MCP_KEY}", "Authorization: Bearer ${MCP_KEY}"]) == set()
    )
    assert secret_arguments(["${MCP_USER}:ghp_0123456789abcdefghij"]) == {0}


# -- variables of the server itself

TOKEN = "canary-own-variable-55"


def with_variables(*arguments: str, **variables: str | Secret) -> Registration:
    values = [
        ValueInput(ValueKind.ENVIRONMENT, name, isinstance(value, Secret), value) for name, value in variables.items()
    ]
    return Registration(
        name="x", transport=TransportKind.STDIO, command="npx", arguments=list(arguments), values=values
    )


@pytest.mark.django_db
def test_an_argument_names_a_variable_of_the_server_and_its_secret_stays_one() -> None:
    data = with_variables("mcp-remote", "Authorization:${AUTH_HEADER}", AUTH_HEADER=Secret(f"Bearer {TOKEN}"))
    found = draft_launch_values(data)
    assert found.reached.arguments == ("mcp-remote", f"Authorization:Bearer {TOKEN}")
    assert f"Bearer {TOKEN}" in [secret.reveal() for secret in found.secrets]
    assert TOKEN not in repr(found)


@pytest.mark.django_db
def test_a_plain_variable_of_the_server_goes_before_one_of_the_worker() -> None:
    found = draft_launch_values(with_variables("${MCP_KEY}", MCP_KEY="mine"))
    assert found.reached.arguments == ("mine",)
    assert found.secrets == ()


@pytest.mark.django_db
def test_the_working_directory_names_a_variable_of_the_server_as_well() -> None:
    data = replace(with_variables("x", FOLDER="/srv/mine"), working_directory="${FOLDER}/in")
    assert draft_launch_values(data).reached.working_directory == "/srv/mine/in"


@pytest.mark.django_db
def test_what_a_variable_of_the_server_stands_for_is_not_read_again() -> None:
    data = with_variables("--key=${MINE}", MINE="$${MCP_KEY}")
    assert draft_launch_values(data).reached.arguments == ("--key=${MCP_KEY}",)


@pytest.mark.django_db
def test_the_escape_leaves_the_literal_and_no_variable_is_put_in() -> None:
    found = draft_launch_values(with_variables("$${AUTH_HEADER}", AUTH_HEADER="x"))
    assert found.reached.arguments == ("${AUTH_HEADER}",)


@pytest.mark.django_db
@pytest.mark.parametrize("form", list(Form))
def test_arguments_with_references_and_escapes_come_back_from_an_export_as_they_were(
    form: Form, admin: Any, actor: Actor
) -> None:
    arguments = ["Authorization:${AUTH_HEADER}", "$${LITERAL}", "$${workspaceFolder}/x"]
    server = registering.register(actor, admin, over_stdio(arguments=arguments))
    again = read(export([server], form))
    entry = parse(again, *again.servers[0])
    assert entry.registration is not None
    assert (entry.registration.arguments, entry.needs) == (arguments, ())
