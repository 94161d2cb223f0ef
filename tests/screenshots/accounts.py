"""The form of a service account, filled in and refused: no secret returns into it."""

from playwright.sync_api import Page

FILLED = {
    "name": "Nightly report",
    "url": "https://mcp.example.com/mcp",
    "client": "nightly-report",
    "issuer": "https://login.example.com",
    "key": "-----BEGIN PRIVATE KEY-----\nthis is none\n-----END PRIVATE KEY-----",
}


def refuse_account(page: Page) -> None:
    for name, text in FILLED.items():
        page.locator(f"form.card [name={name}]").fill(text)
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator(".err").first.wait_for()
    assert "this is none" not in page.content()
