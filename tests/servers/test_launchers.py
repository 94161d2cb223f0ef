"""Launchers that install their server first, and those that may prompt a person, are recognised."""

import pytest

from servers.validators import asks_before_installing, launcher, split_command_line


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("npx -y @acme/server", "npx"),
        ("/usr/local/bin/npx @acme/server", "npx"),
        ("npx.cmd -y @acme/server", "npx"),
        ("uvx acme-server", "uvx"),
        ("uv tool run acme-server", "uv tool run"),
        ("uv --quiet run server.py", "uv run"),
        ("pipx run acme-server", "pipx run"),
        ("docker run -i --rm acme/server", "docker run"),
        ("podman run -i acme/server", "podman run"),
        ("bunx acme-server", "bunx"),
        ("bun x acme-server", "bun x"),
        ("pnpm dlx acme-server", "pnpm dlx"),
        ("yarn dlx acme-server", "yarn dlx"),
        ("npm exec -y acme-server", "npm exec"),
        ("deno run -A jsr:@acme/server", "deno"),
        ("env DEBUG=1 npx -y @acme/server", "npx"),
        ("sh -c 'npx -y @acme/server 2>/dev/null'", "npx"),
        ("bash -lc 'exec uvx acme-server'", "uvx"),
        ("bash -euo pipefail -c 'uvx acme-server'", "uvx"),
        ("uv --directory /srv/app run server.py", "uv run"),
        ("uv --project /srv/app tool run acme-server", "uv tool run"),
        ("npm --prefix /srv/app exec acme-server", "npm exec"),
        ("pnpm -C /srv/app dlx acme-server", "pnpm dlx"),
        ("docker --context remote run -i acme/server", "docker run"),
        ("docker compose -f /srv/compose.yml run acme", "docker compose run"),
        ("python -m acme", ""),
        ("docker exec -i box server", ""),
        ("uv pip list", ""),
        ("npm start", ""),
        ("node npx", ""),
        ("sh -c 'unbalanced \"'", ""),
    ],
)
def test_a_launcher_is_recognised_behind_paths_options_and_shells(line: str, name: str) -> None:
    assert launcher(*split_command_line(line)) == name


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("npx @acme/server", True),
        ("npx --package @acme/server acme -y", True),
        ("npx @acme/server -y", True),
        ("npm exec @acme/server", True),
        ("sh -c 'npx @acme/server'", True),
        ("npx -y @acme/server", False),
        ("npx --yes @acme/server", False),
        ("npx -q -y @acme/server", False),
        ("npx --no @acme/server", False),
        ("npx", False),
        ("npm exec --yes @acme/server", False),
        ("uvx acme-server", False),
        ("pnpm dlx acme-server", False),
    ],
)
def test_npx_without_its_yes_is_noticed(line: str, asks: bool) -> None:
    assert asks_before_installing(*split_command_line(line)) is asks
