"""Import and export on the command line follow the rules, permissions and wording of the pages."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from servers.models import Server
from servers.registration.resolved_values import launch_values
from tests.servers.cast import CANARY

pytestmark = pytest.mark.django_db

FILE = {
    "mcpServers": {
        "files": {"command": "npx", "args": ["-y", "files"], "env": {"API_TOKEN": "${input:token}", "LEVEL": "debug"}},
        "orders": {"url": "https://orders.example/mcp"},
    }
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(FILE))
    return str(path)


def run(command: str, *arguments: str, user: str = "ada") -> str:
    out = StringIO()
    call_command(command, "--user", user, *arguments, stdout=out)
    return out.getvalue()


def test_a_file_is_imported_and_what_it_needs_is_reported(admin: Any, file: str) -> None:
    said = run("import_servers", file).splitlines()
    assert said == [
        "created: files: Imported disabled. Enter the missing values in its settings, then enable it. Missing values: API_TOKEN.",
        "created: orders",
    ]


def test_a_dry_run_stores_nothing(admin: Any, file: str) -> None:
    assert "create: files: Values to fill in: input:token" in run("import_servers", file, "--dry-run")
    assert not Server.objects.exists()


def test_a_value_comes_from_a_variable(admin: Any, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", CANARY)
    run("import_servers", file, "--value", "input:token=MY_TOKEN")
    assert launch_values(Server.objects.get(slug="files")).environment["API_TOKEN"].reveal() == CANARY


def test_conflicts_are_skipped_overwritten_or_renamed_as_asked(admin: Any, file: str) -> None:
    run("import_servers", file)
    assert "unchanged: orders" in run("import_servers", file)
    Server.objects.filter(slug="orders").update(url="https://old.example/mcp")
    assert "skipped: orders" in run("import_servers", file)
    assert "changed: orders" in run("import_servers", file, "--on-conflict", "overwrite")
    assert Server.objects.get(slug="orders").url == "https://orders.example/mcp"
    run("import_servers", file, "--on-conflict", "rename")
    assert Server.objects.filter(name="orders (imported)").exists()


def test_of_several_ways_to_run_one_server_only_the_proposed_one_is_imported(admin: Any, tmp_path: Path) -> None:
    packages = [
        {"registryType": "npm", "identifier": "notes", "version": "1.0.0", "transport": {"type": "stdio"}},
        {"registryType": "oci", "identifier": "example/notes", "version": "1.0.0", "transport": {"type": "stdio"}},
    ]
    remotes = [{"type": "streamable-http", "url": "https://notes.example/mcp"}]
    named = {"name": "io.example/notes", "description": "Notes", "version": "1.0.0"}
    path = tmp_path / "server.json"
    path.write_text(json.dumps(named | {"packages": packages, "remotes": remotes}))
    planned = run("import_servers", str(path), "--dry-run").splitlines()
    assert [line.partition(":")[0] for line in planned] == ["create", "skip", "skip"]
    done = run("import_servers", str(path), "--on-conflict", "rename").splitlines()
    assert [line.partition(":")[0] for line in done] == ["created", "skipped", "skipped"]
    assert Server.objects.count() == 1


def test_a_command_of_the_file_needs_its_permission(operator: Any, file: str) -> None:
    with pytest.raises(CommandError, match="Some servers were not imported"):
        run("import_servers", file, user="otto")
    assert list(Server.objects.values_list("slug", flat=True)) == ["orders"]


@pytest.mark.parametrize("arguments", [["nowhere.json"], ["-", "--value", "x"]], ids=["absent", "value"])
def test_what_is_wrong_is_one_clear_line(arguments: list[str], admin: Any, file: str) -> None:
    with pytest.raises(CommandError) as caught:
        run("import_servers", *(file if word == "-" else word for word in arguments))
    assert len(str(caught.value).splitlines()) == 1


def test_an_export_comes_back_the_same(admin: Any, file: str, tmp_path: Path) -> None:
    run("import_servers", file)
    text = run("export_servers")
    Server.objects.all().delete()
    (tmp_path / "again.json").write_text(text)
    run("import_servers", str(tmp_path / "again.json"))
    assert run("export_servers") == text
    assert list(json.loads(run("export_servers", "orders"))["mcpServers"]) == ["orders"]
    with pytest.raises(CommandError, match="no server nothing"):
        run("export_servers", "nothing")


def test_a_dry_run_shows_characters_that_would_move_the_cursor(
    admin: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = "evil\x1b[1A\x1b[2K\nsame: other"
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {hidden: {"command": "npx", "\x1b[2Jnote": 1}}, "\x1b[2Jmore": 1}))
    said = run("import_servers", str(path), "--dry-run")
    assert said.splitlines()[0].startswith("create: evil[U+001B][1A[U+001B][2K same: other")
    assert len(said.splitlines()) == 1
    assert "\x1b" not in said + capsys.readouterr().err
