"""What a stdio server may touch: entered, checked, proposed, exported, and shown in the audit log."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.http import QueryDict

from servers import validators
from servers.audit.record import Actor
from servers.configuration import Registration
from servers.enums import NetworkAccess, TransportKind
from servers.models import AuditEvent, Server
from servers.registration import registering
from servers.registration.exporting import export
from servers.registration.forms import ServerForm
from servers.registration.proposals import proposed

ACCESS: dict[str, Any] = {
    "readable_paths": ["/srv/data"],
    "writable_paths": ["/srv/out"],
    "network_access": NetworkAccess.LISTED,
    "network_hosts": ["api.example.com", "10.0.0.5:5432"],
}


def registered(user: Any, **fields: Any) -> Server:
    data = Registration(name="files", transport=TransportKind.STDIO, command="cat", **fields)
    return registering.register(Actor.of_user(user), user, data)


@pytest.mark.django_db
def test_access_is_stored_exported_and_in_the_audit_log(admin_user: Any) -> None:
    server = registered(admin_user, **ACCESS)
    assert {name: getattr(server, name) for name in ACCESS} == ACCESS
    exported = export([server])
    assert all(entry in exported for entry in ("/srv/data", "/srv/out", "listed", "10.0.0.5:5432"))
    body = AuditEvent.objects.filter(subject="files").latest("seq").body
    assert '"writable_paths":{"after":["/srv/out"]' in body


@pytest.mark.django_db
def test_a_server_that_is_no_command_has_no_access_of_its_own(admin_user: Any) -> None:
    data = Registration(
        name="web", transport=TransportKind.STREAMABLE_HTTP, url="https://mcp.example.com/mcp", **ACCESS
    )
    server = registering.register(Actor.of_user(admin_user), admin_user, data)
    assert (server.readable_paths, server.network_access, server.network_hosts) == ([], NetworkAccess.PUBLIC, [])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "entry"),
    [
        ("readable_paths", "srv/data"),
        ("readable_paths", "/srv/../etc"),
        ("writable_paths", "/"),
        ("writable_paths", "/proc/sys"),
        ("network_hosts", "https://example.com"),
        ("network_hosts", "169.254.169.254"),
        ("network_hosts", "host:70000"),
    ],
)
def test_what_cannot_be_granted_is_refused_by_name(field: str, entry: str, admin_user: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        registered(admin_user, **{field: [entry]})
    assert list(refused.value.message_dict) == [field]


@pytest.mark.parametrize(
    "host", ["example.com", "*.example.com", "localhost:5432", "10.0.0.5", "[fd00::5]:80", "fd00::5"]
)
def test_names_and_addresses_with_and_without_a_port_are_hosts(host: str) -> None:
    validators.validate_host(host)


def posted(**fields: str) -> QueryDict:
    data = QueryDict(mutable=True)
    data.update({"name": "x", "command": "", "arguments": ""} | fields)
    for prefix in ("values", "roots"):
        data.update({f"{prefix}-TOTAL_FORMS": "0", f"{prefix}-INITIAL_FORMS": "0"})
    return data


@pytest.mark.django_db
def test_a_usual_server_is_proposed_what_its_command_names_and_needs_a_second_click(admin_user: Any) -> None:
    form = ServerForm(posted(command="npx -y server-filesystem /srv/data"), user=admin_user, propose=True)
    assert not form.is_valid()
    assert form["writable_paths"].value() == "/srv/data"
    assert "This looks like a file server. Access to /srv/data was filled in below" in form.notes_for_user[0]
    again = posted(command="npx -y server-filesystem /srv/data", proposed="1", writable_paths="")
    assert not ServerForm(again, user=admin_user, propose=True).proposing


@pytest.mark.django_db
def test_the_socket_of_a_container_engine_is_proposed_with_a_warning(admin_user: Any) -> None:
    form = ServerForm(posted(command="docker run -i image"), user=admin_user, propose=True)
    assert not form.is_valid()
    assert "gives control over the whole machine" in form.notes_for_user[1]


@pytest.mark.parametrize(
    ("line", "field", "entries"),
    [
        ("uvx mcp-server-git --repository /srv/repo", "writable_paths", ("/srv/repo",)),
        ("uvx mcp-server-sqlite --db-path /srv/db/a.sqlite", "writable_paths", ("/srv/db",)),
        ("npx server-postgres postgresql://u:p@db.internal/x", "network_hosts", ("db.internal:5432",)),
        ("uv run --directory /srv/app server.py", "writable_paths", ("/srv/app",)),
        ("uv --directory /srv/app run server.py", "writable_paths", ("/srv/app",)),
        ("uv run --directory /srv/app mcp-server-git --repository /srv/repo", "writable_paths", ("/srv/repo",)),
        ("python -m mcp_server_git --repository /srv/repo", "writable_paths", ("/srv/repo",)),
        ("node /srv/server-filesystem/dist/index.js /srv/data", "writable_paths", ("/srv/data",)),
        ("/opt/bin/mcp-server-git --repository /srv/repo", "writable_paths", ("/srv/repo",)),
        ("docker run -i image", "writable_paths", ("/var/run/docker.sock",)),
        ("env DOCKER_HOST= /usr/bin/docker run -i image", "writable_paths", ("/var/run/docker.sock",)),
    ],
)
def test_a_known_command_line_proposes_what_it_needs(line: str, field: str, entries: tuple[str, ...]) -> None:
    command, *arguments = line.split()
    found = proposed(command, arguments)
    assert found is not None
    assert getattr(found, field) == entries


def test_nothing_is_proposed_for_what_needs_nothing() -> None:
    assert proposed("npx", ["-y", "@modelcontextprotocol/server-everything"]) is None
    assert proposed("npx", ["-y", "@modelcontextprotocol/server-filesystem"]) is None


@pytest.mark.parametrize(
    "line",
    [
        "uvx kb-mcp --topic docker",
        "npx -y notes-mcp /srv/docker",
        "npx -y notes-mcp --topic uv --project /etc",
        "npx -y notes-mcp server-filesystem /etc",
        "notes-mcp server-filesystem /etc",
        "uv run notes.py --directory /etc",
        "podman run -i image",
    ],
)
def test_words_among_the_arguments_of_another_program_propose_nothing(line: str) -> None:
    command, *arguments = line.split()
    assert proposed(command, arguments) is None


@pytest.mark.django_db
def test_allow_adds_its_entry_to_the_form_and_says_so(admin_user: Any) -> None:
    server = registered(admin_user, **ACCESS)
    form = ServerForm(user=admin_user, server=server, allowing=("readable_paths", "/opt/tool"))
    assert form["readable_paths"].value() == "/srv/data\n/opt/tool"
    assert form.notes_for_user == ["/opt/tool was added to “Files it may read”. Save to allow it."]
    assert ServerForm(user=admin_user, server=server, allowing=("command", "/bin/sh"))["command"].value() == "cat"
