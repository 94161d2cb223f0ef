"""An import works in a real browser: five clients' formats, missing values, and a server that connects afterwards."""

import json

import pytest
from playwright.sync_api import Page, expect

from mcpadmin.settings import DEMO_COMMAND

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]

DEMO = DEMO_COMMAND
ZED = {"theme": "One", "context_servers": {"zed-notes": {"command": {"path": DEMO[0], "args": DEMO[1:], "env": {}}}}}
OPENCODE = {
    "mcp": {
        "oc-files": {"type": "local", "command": ["npx", "-y", "@acme/files", "/path/to/files"]},
        "oc-issues": {
            "type": "remote",
            "url": "https://<region>.issues.example/mcp",
            "headers": {"X-Key": "{env:MCP_KEY}"},
        },
    }
}
GOOSE = """# ~/.config/goose/config.yaml
extensions:
  developer:
    type: builtin
    enabled: true
  goose-mail:
    type: stdio
    cmd: uvx
    args: [acme-mail]
    envs: {MAIL_API_KEY: "re_xxxxxxxx"}
    enabled: true
    timeout: 300
"""
README = """Add this to your client:

```json
{"mcpServers": {"readme-wiki": {"command": "uvx", "args": ["acme-wiki"], "env": {"WIKI_URL": "https://your-company.wiki.example"}}}}
```

For VS Code:

```json
{"servers": {"readme-wiki": {"type": "stdio", "command": "uvx", "args": ["acme-wiki"]}}}
```
"""
REGISTRY = {
    "name": "io.github.acme/registry-db",
    "description": "Queries a database",
    "version": "1.2.0",
    "packages": [
        {
            "registryType": "npm",
            "identifier": "@acme/db",
            "version": "1.2.0",
            "transport": {"type": "stdio"},
            "packageArguments": [
                {
                    "type": "named",
                    "name": "--mode",
                    "isRequired": True,
                    "description": "Access mode",
                    "choices": ["ro", "rw"],
                }
            ],
            "environmentVariables": [
                {"name": "DB_TOKEN", "isRequired": True, "isSecret": True, "description": "Token"}
            ],
        }
    ],
    "remotes": [{"type": "streamable-http", "url": "https://db.example/mcp"}],
}


def preview(page: Page, text: str) -> None:
    page.goto("/servers/import/")
    page.get_by_label("Configuration").fill(text)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Import preview", level=1)).to_be_visible()


def card(page: Page, name: str):
    return page.get_by_role("article", name=name, exact=True)


def apply(page: Page) -> None:
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_role("heading", name="Import result", level=1)).to_be_visible()


@pytest.mark.long
def test_a_server_of_zed_is_imported_and_connects(stack, page) -> None:
    preview(page, json.dumps(ZED))
    expect(page.locator(".imp-sum")).to_contain_text("Format: Zed.")
    apply(page)
    page.get_by_role("link", name="zed-notes").click()
    page.goto("/servers/zed-notes/tools/")
    expect(page.locator(".meta")).to_contain_text("2026-07-28", timeout=60_000)


def test_placeholders_are_asked_for_and_must_be_filled_in(stack, page, complaints) -> None:
    complaints.allow("422")
    preview(page, json.dumps(OPENCODE))
    files, issues = card(page, "oc-files"), card(page, "oc-issues")
    expect(files).to_contain_text("Placeholder in the file: /path/to/files")
    expect(issues).to_contain_text("Placeholder in the file: <region>")
    expect(issues).to_contain_text("${MCP_KEY}")
    issues.get_by_label("region", exact=False).first.fill("eu")
    issues.get_by_label("Create", exact=True).check()
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.locator("[data-focus-first]")).to_contain_text("Enter the values that are marked below")
    expect(files).to_contain_text("Enter the value.")
    expect(issues.get_by_label("region", exact=False).first).to_have_value("eu")
    files.get_by_label("Skip", exact=True).check()
    apply(page)
    outcomes = page.locator(".imp-out")
    expect(outcomes).to_contain_text("Skipped")
    expect(outcomes.get_by_role("link", name="oc-issues")).to_be_visible()
    page.goto("/servers/oc-issues/settings/")
    expect(page.get_by_label("URL", exact=True)).to_have_value("https://eu.issues.example/mcp")


def test_yaml_of_goose_is_read_and_its_own_parts_are_named(stack, page) -> None:
    preview(page, GOOSE)
    main = page.locator("main")
    expect(main).to_contain_text("Skipped because they are built into Goose: developer.")
    mail = card(page, "goose-mail")
    expect(mail).to_contain_text("Placeholder in the file: re_xxxxxxxx")
    expect(mail).to_contain_text("Ignored: timeout.")
    apply(page)
    expect(page.locator(".imp-out")).to_contain_text("Missing values: MAIL_API_KEY")
    expect(page.locator(".imp-out")).to_contain_text("Imported disabled.")


@pytest.mark.long
def test_the_section_of_a_readme_is_read(stack, page) -> None:
    preview(page, README)
    expect(page.locator("main")).to_contain_text("1 more configuration in the text was not read.")
    wiki = card(page, "readme-wiki")
    expect(wiki).to_contain_text("Placeholder in the file: your-company")
    wiki.get_by_role("textbox", name="WIKI_URL").fill("acme")
    apply(page)
    page.goto("/servers/readme-wiki/settings/")
    expect(page.locator("main")).to_contain_text("WIKI_URL")


def test_a_server_json_of_the_registry_offers_each_way_and_proposes_the_first(stack, page) -> None:
    preview(page, json.dumps(REGISTRY))
    first, other = card(page, "registry-db"), card(page, "registry-db (streamable-http)")
    expect(first).to_contain_text("npx -y @acme/db@1.2.0 --mode '<Access mode>'")
    expect(first).to_contain_text("One of: ro, rw.")
    expect(first.get_by_label("Create", exact=True)).to_be_checked()
    expect(other.get_by_label("Skip", exact=True)).to_be_checked()
    expect(other).to_contain_text("Another way to run registry-db.")
    first.get_by_label("Access mode", exact=False).fill("ro")
    first.get_by_label("Token", exact=False).fill("canary-token-5b21")
    apply(page)
    expect(page.locator(".imp-out")).to_contain_text("Created")
    expect(page.locator("body")).not_to_contain_text("canary-token-5b21")
