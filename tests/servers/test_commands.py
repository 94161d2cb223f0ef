"""The command line follows the same rules, permissions and audit log as the pages."""

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from servers.audit.record import Actor
from servers.credentials import vault as credentials
from servers.credentials.kinds import Parts
from servers.enums import AuditAction, CredentialKind, SignsInAs
from servers.models import AuditEvent, Server
from servers.registration.resolved_values import launch_values
from servers.secret import Secret
from tests.servers.cast import CANARY

pytestmark = pytest.mark.django_db


def register(*arguments: str, user: str = "ada", name: str = "Files") -> str:
    out = StringIO()
    call_command("register_server", "--user", user, "--name", name, *arguments, stdout=out)
    return out.getvalue()


def test_a_command_line_is_registered_with_its_arguments_as_they_stand(admin: Any) -> None:
    assert "/servers/files/" in register("--env", "LEVEL=debug", "--", "npx", "-y", "@acme/files", "--root=/srv")
    server = Server.objects.get()
    assert (server.command, server.arguments) == ("npx", ["-y", "@acme/files", "--root=/srv"])
    assert launch_values(server).environment == {"LEVEL": "debug"}
    event = AuditEvent.objects.get(action=AuditAction.SERVER_REGISTER)
    assert (event.actor_name, event.ip) == ("ada", "")


def test_a_secret_is_read_from_a_variable_and_sealed(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", CANARY)
    register("--url", "https://x.example/mcp", "--secret-header", "Authorization=MY_TOKEN", "--disabled")
    server = Server.objects.get()
    assert not server.enabled
    assert server.values.get().plain == ""
    assert launch_values(server).headers["Authorization"].reveal() == CANARY


def test_a_server_is_given_credentials_of_the_vault_and_says_whose_identity_counts(actor: Actor, admin: Any) -> None:
    token = Parts(CredentialKind.BEARER, {}, {"token": Secret(CANARY)})
    credentials.create(actor, admin, "Orders API", token, "https://x.example")
    register("--url", "https://x.example/mcp", "--credential", "Orders API", "--signs-in-as", "either")
    server = Server.objects.get()
    assert server.signs_in_as == SignsInAs.EITHER
    assert launch_values(server).headers["Authorization"].reveal() == f"Bearer {CANARY}"
    with pytest.raises(CommandError, match="There is no credential 'Other'"):
        register("--url", "https://x.example/mcp", "--credential", "Other", name="Second")


def test_a_user_without_permission_is_refused_and_that_is_written_down(operator: Any) -> None:
    with pytest.raises(CommandError, match="have permission to register commands"):
        register("--", "npx", user="otto")
    assert not Server.objects.exists()
    assert AuditEvent.objects.get(action=AuditAction.PERMISSION_DENY).actor_name == "otto"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Pass either"),
        (["--url", "https://x/", "--", "npx"], "Pass either"),
        (["--url", "ftp://x/"], "url: Start the URL"),
        (["--url", "https://x/", "--header", "nothing"], "NAME=VALUE"),
        (["--url", "https://x/", "--secret-header", "A=NOT_SET_ANYWHERE"], "is not set"),
    ],
)
def test_what_is_wrong_is_one_clear_line(arguments: list[str], words: str, admin: Any) -> None:
    with pytest.raises(CommandError, match=words):
        register(*arguments)
    assert not Server.objects.exists()


def test_an_unknown_user_is_named(admin: Any) -> None:
    with pytest.raises(CommandError, match="'nobody'"):
        register("--", "npx", user="nobody")
