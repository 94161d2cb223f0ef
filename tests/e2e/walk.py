"""A person's steps in the browser, as readable methods. Each step waits for what the person would see."""

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.tools.browser import Complaints, sign_in

SECONDS = 1000


class Walk:
    """One person in one browser window."""

    def __init__(self, page: Page, base_url: str, complaints: Complaints) -> None:
        self.page = page
        self.complaints = complaints
        self.base_url = base_url.rstrip("/")
        page.set_default_timeout(20 * SECONDS)

    def open(self, path: str) -> None:
        self.page.goto(self.base_url + path)

    # --- account -----------------------------------------------------------------------------------------------------
    def use_setup_link(self, link: str, name: str, password: str) -> None:
        self.page.goto(link)
        self.page.locator("input[name=username]").fill(name)
        self.page.locator("input[name=password1]").fill(password)
        self.page.locator("input[name=password2]").fill(password)
        self.page.locator("input[name=password2]").press("Enter")
        expect(self.page.get_by_role("heading", name="Overview")).to_be_visible()

    def sign_in(self, name: str, password: str) -> None:
        sign_in(self.page, name, password)
        expect(self.page.get_by_role("heading", name="Overview")).to_be_visible()

    # --- registering ---------------------------------------------------------------------------------------------------
    def open_add_form(self) -> None:
        """*Add server* with all its fields, for what is not written in the box."""
        self.open("/servers/add/")
        for fold in ("by-hand", "more"):
            self.page.locator(f"[data-kept-open={fold}] > summary").click()

    def fill_stdio(self, name: str, command: str, arguments: list[str], **environment: str) -> None:
        self.open_add_form()
        self.page.locator("#server-form input[name=name]").fill(name)
        self.page.get_by_label("Transport").select_option("stdio")
        self.page.get_by_label("Command", exact=True).fill(command)
        self.page.get_by_label("Arguments").fill("\n".join(arguments))
        self._fill_values("environment", environment)
        written = [str(Path(value).parent) for value in environment.values() if value.startswith("/")]
        if written:  # the effects that a peer records
            self.page.get_by_label("Files it may read and change").fill("\n".join(written))

    def fill_url(self, name: str, url: str) -> None:
        """Leave the transport to be detected from the URL."""
        self.open_add_form()
        self.page.locator("#server-form input[name=name]").fill(name)
        self.page.get_by_label("URL", exact=True).fill(url)

    def fill_http(self, name: str, url: str, **headers: str) -> None:
        self.open_add_form()
        self.page.locator("#server-form input[name=name]").fill(name)
        self.page.get_by_label("Transport").select_option("streamable_http")
        self.page.get_by_label("URL", exact=True).fill(url)
        self._fill_values("header", headers)

    def _fill_values(self, kind: str, values: dict[str, str]) -> None:
        for index, (name, value) in enumerate(values.items()):
            row = self.page.locator("[data-value-row]:visible").nth(index)
            row.locator("select").select_option(kind)
            row.locator("input[name$=-name]").fill(name)
            row.locator("input[name$=-value], textarea[name$=-value]").fill(value)

    def test_connection(self) -> Locator:
        self.page.get_by_role("button", name="Test connection").click()
        return self.page.locator("#test-result")

    def save(self) -> None:
        self.page.get_by_role("button", name="Register server").click()

    def register_stdio(self, name: str, command: str, arguments: list[str], **environment: str) -> None:
        self.fill_stdio(name, command, arguments, **environment)
        self.save()
        expect(self.page.get_by_role("heading", name=name, exact=True)).to_be_visible()

    def register_http(self, name: str, url: str, **headers: str) -> None:
        self.fill_http(name, url, **headers)
        self.save()
        expect(self.page.get_by_role("heading", name=name, exact=True)).to_be_visible()

    # --- one server ------------------------------------------------------------------------------------------------------
    def open_tool(self, slug: str, tool: str) -> None:
        self.open(f"/servers/{slug}/tools/?tool={tool}")
        expect(self.page.locator("#tool-form")).to_be_visible()
        expect(self.page.get_by_role("status").filter(has_text="Live").first).to_be_visible()

    def state(self) -> Locator:
        return self.page.locator("[data-live-target^='server.'] .title .tag")

    def wait_for_state(self, word: str, seconds: int = 40) -> None:
        expect(self.state()).to_contain_text(word, timeout=seconds * SECONDS)
        if word == "Ready" and "/tools/" in self.page.url:
            # An empty page reloads when the first list arrives. Wait for that, so that it does not happen later.
            expect(self.page.locator("#tool-list")).to_be_visible()

    def fill_argument(self, name: str, value: str) -> None:
        """Fill a field of the generated form. Typing into an optional field also ticks its "send" box."""
        box = self.page.locator(f"[name='arg:/{name}']")
        if not box.is_visible():
            self.page.locator("#tool-form .sf-more summary").first.click()
        box.fill(value)

    def run_tool(self) -> None:
        self.page.get_by_role("button", name="Run tool").click()

    def result(self) -> Locator:
        """The card of the newest call."""
        return self.page.locator("#results .call-slot").first

    def until(self, condition: Callable[[], bool], seconds: int = 20) -> None:
        """Wait for a condition outside of the page while the page keeps running."""
        for _ in range(seconds * 10):
            if condition():
                return
            self.page.wait_for_timeout(100)
        raise AssertionError("it never came true")
