"""References resolve only what the worker's operator offers, and nothing else of the worker."""

from pathlib import Path
from typing import Any

import pytest

from servers.audit.record import Actor
from servers.credentials.reference_grants import ALL
from servers.credentials.references import ReferenceMissing, has_reference, resolve
from servers.registration import registering
from servers.registration.resolved_values import NotLaunchable, launch_values
from servers.secret import Secret
from tests.servers.cast import header, over_http, over_stdio, variable

VALUE = "canary-reference-91"


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> Path:
    """Offers MCP_TOKEN and a folder with the file `token`."""
    monkeypatch.setenv("MCP_TOKEN", VALUE)
    monkeypatch.setenv("PRIVATE_TOKEN", "private-value-1")
    monkeypatch.setenv("MCPADMIN_SECRET", "private-value-2")
    folder = tmp_path / "offered"
    folder.mkdir()
    (folder / "token").write_text(f"{VALUE}\n")
    (tmp_path / "outside").write_text("private-value-3")
    (folder / "link").symlink_to(tmp_path / "outside")
    settings.REFERENCE_FOLDERS = [str(folder)]
    return folder


def test_a_variable_and_a_file_are_put_in_and_known_as_secrets(offered: Path) -> None:
    found = resolve(f"Bearer ${{MCP_TOKEN}} and ${{file:{offered / 'token'}}}", ALL)
    assert found.text == f"Bearer {VALUE} and {VALUE}"
    assert [secret.reveal() for secret in found.secrets] == [VALUE, VALUE]


@pytest.mark.parametrize(
    ("text", "plain"),
    [("$${MCP_TOKEN}", "${MCP_TOKEN}"), ("$MCP_TOKEN", "$MCP_TOKEN"), ("${}", "${}"), ("${a-b}", "${a-b}")],
)
def test_what_is_no_reference_stays_as_it_is(text: str, plain: str) -> None:
    assert not has_reference(text)
    assert resolve(text, ALL).text == plain


def test_what_was_put_in_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_OUTER", "${MCP_TOKEN}")
    assert resolve("${MCP_OUTER}", ALL).text == "${MCP_TOKEN}"


@pytest.mark.parametrize("name", ["PRIVATE_TOKEN", "MCPADMIN_SECRET", "PATH"])
def test_the_workers_own_variables_are_not_offered(name: str) -> None:
    with pytest.raises(ReferenceMissing, match="not available") as refused:
        resolve(f"${{{name}}}", ALL)
    assert "private-value" not in str(refused.value)


def test_a_variable_that_is_missing_is_named() -> None:
    with pytest.raises(ReferenceMissing, match="no variable MCP_ABSENT"):
        resolve("${MCP_ABSENT}", ALL)


@pytest.mark.parametrize("name", ["../outside", "link", "/etc/passwd", "offered/token"])
def test_files_elsewhere_are_not_offered_whatever_leads_there(name: str, offered: Path) -> None:
    path = name if name.startswith(("/", "offered")) else f"{offered}/{name}"
    with pytest.raises(ReferenceMissing, match="not available"):
        resolve(f"${{file:{path}}}", ALL)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"a\0b", b"x" * 70_000], ids=["empty", "bytes", "nul", "large"])
def test_a_file_that_holds_no_value_is_refused(content: bytes, offered: Path) -> None:
    (offered / "odd").write_bytes(content)
    with pytest.raises(ReferenceMissing):
        resolve(f"${{file:{offered / 'odd'}}}", ALL)


@pytest.mark.django_db
def test_a_launch_resolves_headers_and_variables_and_keeps_them_secret(admin: Any, actor: Actor) -> None:
    server = registering.register(
        actor, admin, over_http(values=[header("Authorization", "Bearer ${MCP_TOKEN}", secret=False)])
    )
    assert VALUE not in str(server.values.get().plain)
    found = launch_values(server)
    sent = found.headers["Authorization"]
    assert isinstance(sent, Secret)
    assert sent.reveal() == f"Bearer {VALUE}"
    assert [secret.reveal() for secret in found.secrets] == [VALUE]
    local = registering.register(actor, admin, over_stdio(values=[variable("TOKEN", "${MCP_TOKEN}")]))
    given = launch_values(local).environment["TOKEN"]
    assert isinstance(given, Secret)
    assert given.reveal() == VALUE


@pytest.mark.django_db
def test_a_missing_reference_stops_the_launch_with_the_name_of_the_header(admin: Any, actor: Actor) -> None:
    server = registering.register(actor, admin, over_http(values=[header("X-Key", "${MCP_ABSENT}", secret=False)]))
    with pytest.raises(NotLaunchable, match=r"X-Key: The worker has no variable MCP_ABSENT") as refused:
        launch_values(server)
    assert refused.value.fault == "reference_missing"
