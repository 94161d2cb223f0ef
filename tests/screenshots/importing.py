"""A configuration for the screenshots of an import: a new entry, a known one, one with a missing value, a bad one."""

import json

from playwright.sync_api import Page

_CONFIGURATION = {
    "mcpServers": {
        "Demo server": {
            "command": "python",
            "args": ["-m", "mcpadmin.demo_server", "--quiet"],
            "env": {"LEVEL": "debug"},
        },
        "github": {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-github"],
            "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_0123456789abcdefghij", "LOG_LEVEL": "info"},
        },
        "linear": {
            "url": "https://mcp.linear.example/mcp",
            "headers": {"Authorization": "Bearer ${env:LINEAR_TOKEN}", "X-Team": "${input:team}"},
            "alwaysAllow": ["list_issues"],
            "timeout": 60,
        },
        "files": {"command": "uvx", "args": ["mcp-files", "--root", "${workspaceFolder}"], "disabled": True},
        "legacy": {"type": "gopher", "url": "https://legacy.example/"},
    }
}


def preview_import(page: Page) -> None:
    page.get_by_label("Configuration").fill(json.dumps(_CONFIGURATION))
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("heading", name="Import preview").wait_for()


def apply_import(page: Page) -> None:
    """Skip every importable entry, so that repeating the screenshot finds the same product."""
    preview_import(page)
    for skipped in ("github", "linear", "files"):
        page.get_by_role("group", name=f"Action for {skipped}").get_by_label("Skip").check()
    page.get_by_role("button", name="Import", exact=True).click()
    page.get_by_role("heading", name="Import result").wait_for()


def refuse_import(page: Page) -> None:
    page.get_by_label("Configuration").fill('{"mcpServers": {"files": {"command": "npx" "args": []}}}')
    page.get_by_role("button", name="Preview").click()
    page.locator(".err").first.wait_for()
