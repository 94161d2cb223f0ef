"""Interactions that prepare a page for its screenshot."""

from collections.abc import Callable

from playwright.sync_api import Page, expect


def open_palette(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.locator("dialog[open]").wait_for()


def open_shortcuts(page: Page) -> None:
    page.keyboard.press("?")
    page.locator("dialog[open]").wait_for()


def tick_servers(page: Page) -> None:
    for box in page.locator("input[name=server]").all()[:2]:
        box.check()
    page.get_by_text("2 selected").wait_for()


def delete_ticked_servers(page: Page) -> None:
    tick_servers(page)
    page.get_by_role("button", name="Delete…").click()
    page.get_by_label("Type").fill("delete 3")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.locator(".err").wait_for()


def open_table_of_charts(page: Page) -> None:
    page.get_by_text("Show as table").click()


def unfold_add_form(page: Page) -> None:
    for fold in ("by-hand", "more"):
        page.locator(f"[data-kept-open={fold}] > summary").click()


def write_in_the_box(page: Page) -> None:
    """A command line with a secret: what was understood, and the values that were recognised."""
    page.locator("#source").fill(
        "API_TOKEN=sk-example0000000000001 npx -y @modelcontextprotocol/server-filesystem /srv/data"
    )
    page.locator(".understood").wait_for()


def submit_bad_server(page: Page) -> None:
    unfold_add_form(page)
    page.get_by_role("button", name="Add row").click()
    rows = page.locator("[data-value-row]:visible")
    for index, (name, value) in enumerate([("X Bad Name", "one"), ("", "a value without a name")]):
        rows.nth(index).locator("input[name$=-name]").fill(name)
        rows.nth(index).locator("input[name$=-value]").fill(value)
    page.get_by_role("button", name="Register server").click()
    page.locator(".err").first.wait_for()


def submit_bad_sink(page: Page) -> None:
    page.get_by_label("Name").fill("Loki")
    page.get_by_label("URL").fill("http://otel.example.com/v1/logs")
    page.get_by_label("Header", exact=True).fill("Authorization")
    page.get_by_role("button", name="Add sink").click()
    page.locator(".err").first.wait_for()


def try_connection(page: Page) -> None:
    be_live(page)
    page.get_by_role("button", name="Test connection").click()
    page.locator("#test-result .tag.ok").wait_for()


def be_live(page: Page) -> None:
    expect(page.get_by_role("status").filter(has_text="Live").first).to_be_visible()


def run_without_arguments(page: Page) -> None:
    be_live(page)
    page.get_by_role("button", name="Run tool").click()
    page.locator("[data-sf-errors]").wait_for()


def start_countdown(page: Page) -> None:
    be_live(page)
    page.locator("#tool-form .sf-more").evaluate("details => { details.open = true }")
    page.locator("#arg-start").fill("3")
    page.get_by_role("button", name="Run tool").click()
    page.locator("[data-call-progress]").first.wait_for()


def read_resource(page: Page) -> None:
    be_live(page)
    page.get_by_role("button", name="Read now").click()
    page.locator("#kept-h").wait_for()


def read_nothing(page: Page) -> None:
    be_live(page)
    page.get_by_role("button", name="Read now").click()
    page.locator("#read-slot [data-call-state=rpc_error]").wait_for()


def type_argument(page: Page) -> None:
    be_live(page)
    page.locator("#arg-1").press_sequentially("s")
    page.locator(".sugg [role=option]").first.wait_for()


def get_without_arguments(page: Page) -> None:
    be_live(page)
    page.get_by_role("button", name="Get prompt").click()
    page.locator("[data-error]:visible").wait_for()


def get_prompt(page: Page) -> None:
    be_live(page)
    page.get_by_role("button", name="Get prompt").click()
    page.locator("#results [data-call-state=succeeded]").first.wait_for()


def open_sections(page: Page) -> None:
    """Fill the sections: choices with descriptions, a refused root, and the limits."""
    unfold_add_form(page)
    page.get_by_label("Transport").select_option("websocket")
    page.get_by_label("Protocol era").select_option("legacy")
    page.locator("[name='roots-0-uri']").fill("https://not-a-folder.example/")
    page.locator("[data-limits] summary").click()
    page.locator("[name='limits-depth']").fill("3")


def refuse_sections(page: Page) -> None:
    open_sections(page)
    page.get_by_role("button", name="Register server").click()
    page.locator("[data-limits] .err").first.wait_for()


def start_slow_test(page: Page) -> None:
    be_live(page)
    unfold_add_form(page)
    page.locator("#server-form input[name=name]").fill("Slow")
    page.get_by_label("Command", exact=True).fill("sleep 20")
    page.get_by_role("button", name="Test connection").click()
    page.locator("#test-result .step.started").first.wait_for()


def save_after_somebody_else(page: Page) -> None:
    other = page.context.new_page()
    other.goto(page.url)
    save_description(other, "What the other administrator wrote.")
    other.locator(".toast").first.wait_for()
    other.close()
    page.locator("[name='roots-0-uri']").fill("/srv/data")
    save_description(page, "What I wrote.")
    page.locator("#conflict").wait_for()
    settle_scroll(page)


def save_description(page: Page, words: str) -> None:
    page.get_by_label("Description").fill(words)
    page.get_by_role("button", name="Save changes").click()


def post_too_much(page: Page) -> None:
    page.evaluate("""() => {
      const form = document.querySelector('#server-form');
      for (let n = 0; n < 5100; n += 1) {
        form.append(Object.assign(document.createElement('input'), { name: `x${n}`, type: 'hidden' }));
      }
      form.submit();
    }""")
    page.get_by_role("heading", name="Request too large").wait_for()


def post_a_large_body(page: Page) -> None:
    """Refused by the server itself, before Django sees the request."""
    page.get_by_label("Username").evaluate("field => { field.value = 'x'.repeat(20_000); field.form.submit(); }")
    page.get_by_role("heading", name="Request too large").wait_for()


def click(selector: str) -> Callable[[Page], None]:
    return lambda page: page.locator(selector).first.click()


def send_nothing(page: Page) -> None:
    page.get_by_role("button", name="Send").click()
    page.locator("[data-sf-errors]").wait_for()


def open_removed(page: Page) -> None:
    """Open the removed definitions: below the list, on a phone below the picker."""
    page.locator("details.gone").evaluate_all("found => found.forEach((details) => { details.open = true })")


def choose_credential(page: Page) -> None:
    """Choose a transport, which decides which credentials the page offers, and select one."""
    unfold_add_form(page)
    page.get_by_label("Transport").select_option("stdio")
    page.locator("[data-credentials]").get_by_role("checkbox").check()


def open_event(page: Page) -> None:
    page.locator("tr[data-sel^=calls] td a").first.click()
    page.locator("#detail").wait_for()
    settle_scroll(page)


def open_message(page: Page) -> None:
    page.locator("[data-console-rows] > ol > li").last.locator("summary").first.click()
    page.locator(".wire-facts").wait_for()
    settle_scroll(page)


def wait_for_chart(page: Page) -> None:
    page.locator("#histogram canvas, .chart-card canvas").first.wait_for()
    page.locator("#facets section, .chart-card").first.wait_for(state="attached")


def open_call_session(page: Page) -> None:
    wait_for_chart(page)
    open_event(page)
    page.get_by_role("tab", name="Session").click()


def complete_query(page: Page) -> None:
    wait_for_chart(page)
    page.locator("#query").press("End")
    page.locator("#query").press_sequentially(" ser")
    page.locator("#query-suggestions li").first.wait_for()


def settle_scroll(page: Page) -> None:
    """Wait for smooth scrolling to end, so that the screenshot is not taken halfway."""
    page.wait_for_function(
        "() => new Promise(done => { const y = scrollY; setTimeout(() => done(y === scrollY), 150) })"
    )


def invite_person(page: Page) -> None:
    page.get_by_label("Name", exact=True).fill("Zoe Zimmer")
    page.get_by_role("button", name="Create link").click()
    page.get_by_role("heading", name="Pass this link on").wait_for()


def issue_token(page: Page) -> None:
    page.get_by_role("textbox", name="Name").fill("Claude Code on my laptop")
    page.get_by_role("button", name="Create token").click()
    page.get_by_role("heading", name="Use it from").wait_for()


def issue_badly(page: Page) -> None:
    page.get_by_role("textbox", name="Name").fill("Pipeline")
    page.get_by_label("Only from these addresses").fill("my-laptop")
    page.get_by_role("button", name="Create token").click()
    page.locator(".err").first.wait_for()


def add_no_rule(page: Page) -> None:
    page.get_by_role("button", name="Add rule").click()
    page.locator(".err").first.wait_for()


def join_badly(page: Page) -> None:
    page.get_by_label("Username").fill("olga")
    page.get_by_role("button", name="Create account").click()
    page.locator(".err").first.wait_for()
