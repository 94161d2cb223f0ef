"""The pages that `make screenshots` takes: one row a page. Add a row for each new page."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from playwright.sync_api import Page, expect

from tests.screenshots.accounts import refuse_account
from tests.screenshots.importing import apply_import, preview_import, refuse_import


@dataclass
class World:
    """What the seeded product holds; paths are built from it."""

    setup_link: str = ""
    server: str = ""  # slug of the demo server
    succeeded: str = ""  # uid of a call that went well
    failed: str = ""  # uid of a call whose tool said isError
    audit: int = 0  # sequence number of an audit event about a call
    websocket: str = "old-sockets"  # slugs of servers that are registered and never opened
    archived: str = "retired"
    watched: str = ""  # uids of subscriptions: to text, with gaps and a webhook; to JSON, refused
    refused: str = ""
    failing: str = "broken"  # its command ends at once
    labelled: str = "embeddings"  # names a label that no worker carries
    paused: str = "held-back"
    credential: str = ""  # uid of one that a server uses, and whose server then moved
    questions: dict[str, str] = field(default_factory=dict)  # of the inbox: name in asked.py to uid


class Stage(Enum):
    """How far the product's first day has come; pages are taken in this order."""

    FRESH = "no administrator"
    EMPTY = "an administrator and no server"
    FILLED = "the demo server and some calls"


@dataclass(frozen=True)
class Shot:
    name: str
    path: Callable[[World], str]
    stage: Stage = Stage.FILLED
    signed_in: bool = True
    guest: bool = False  # seen by somebody who may only look
    prepare: Callable[[Page], None] | None = None  # opens a menu, fills a field; before the picture
    allow: tuple[str, ...] = field(default=())  # words of console errors that belong to the page


def at(path: str) -> Callable[[World], str]:
    return lambda world: path


def on_server(rest: str) -> Callable[[World], str]:
    return lambda world: f"/servers/{world.server}/{rest}"


def open_palette(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.locator("dialog[open]").wait_for()


def open_shortcuts(page: Page) -> None:
    page.keyboard.press("?")
    page.locator("dialog[open]").wait_for()


def submit_bad_server(page: Page) -> None:
    page.get_by_role("button", name="Add row").click()
    rows = page.locator("[data-value-row]:visible")
    for index, (name, value) in enumerate([("X Bad Name", "one"), ("", "a value without a name")]):
        rows.nth(index).locator("input[name$=-name]").fill(name)
        rows.nth(index).locator("input[name$=-value]").fill(value)
    page.get_by_role("button", name="Register server").click()
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
    """Choices with their lines, a refused root, and the limits."""
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
    page.locator("#server-form input[name=name]").fill("Slow")
    page.get_by_label("Command").fill("sleep 20")
    page.get_by_role("button", name="Test connection").click()
    page.locator("#test-result .step.started").first.wait_for()


def save_after_somebody_else(page: Page) -> None:
    other = page.context.new_page()
    other.goto(page.url)
    save_description(other, "What the other administrator wrote.")
    other.locator(".toast2").first.wait_for()
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
    page.get_by_role("heading", name="The request could not be read").wait_for()


def click(selector: str) -> Callable[[Page], None]:
    return lambda page: page.locator(selector).first.click()


def question(name: str) -> Callable[[World], str]:
    return lambda world: f"/inbox/{world.questions[name]}/"


def send_nothing(page: Page) -> None:
    page.get_by_role("button", name="Send").click()
    page.locator("[data-sf-errors]").wait_for()


def open_removed(page: Page) -> None:
    """What is gone: below the list, on a phone below the picker."""
    page.locator("details.gone").evaluate_all("found => found.forEach((details) => { details.open = true })")


def choose_credential(page: Page) -> None:
    """What is offered follows the transport and the address that are typed."""
    page.get_by_label("Transport").select_option("stdio")
    page.locator("[data-credentials]").get_by_role("checkbox").check()


def open_event(page: Page) -> None:
    page.locator(".tbl tbody td a").first.click()
    page.locator("#event").wait_for()
    settle_scroll(page)


def settle_scroll(page: Page) -> None:
    """The theme scrolls smoothly to an anchor; a picture in the middle of it shows neither end."""
    page.wait_for_function(
        "() => new Promise(done => { const y = scrollY; setTimeout(() => done(y === scrollY), 150) })"
    )


SHOTS = [
    Shot("setup", lambda world: world.setup_link, Stage.FRESH, signed_in=False),
    Shot("sign-in", at("/accounts/login/"), Stage.EMPTY, signed_in=False),
    Shot("overview-empty", at("/"), Stage.EMPTY),
    Shot("servers-empty", at("/servers/"), Stage.EMPTY),
    Shot("subscriptions-empty", at("/subscriptions/"), Stage.EMPTY),
    Shot("server-add", at("/servers/add/"), Stage.EMPTY),
    Shot("server-add-errors", at("/servers/add/"), Stage.EMPTY, prepare=submit_bad_server, allow=("422",)),
    Shot("server-add-sections", at("/servers/add/"), Stage.EMPTY, prepare=open_sections),
    Shot("server-add-sections-errors", at("/servers/add/"), Stage.EMPTY, prepare=refuse_sections, allow=("422",)),
    Shot("server-test-running", at("/servers/add/"), Stage.EMPTY, prepare=start_slow_test),
    Shot("import", at("/servers/import/"), Stage.EMPTY),
    Shot("import-errors", at("/servers/import/"), Stage.EMPTY, prepare=refuse_import, allow=("422",)),
    Shot("overview", at("/")),
    Shot("servers", at("/servers/")),
    Shot("servers-none", at("/servers/?text=nothing-has-this-name")),
    Shot("import-preview", at("/servers/import/"), prepare=preview_import),
    Shot("import-result", at("/servers/import/"), prepare=apply_import),
    Shot("export", at("/servers/export/")),
    Shot("tools", on_server("tools/")),
    Shot("tools-found", on_server("tools/?find=note")),
    Shot("tools-not-found", on_server("tools/?find=nothing-has-this-name")),
    Shot("tool-form", on_server("tools/?tool=search_notes")),
    Shot("tool-called", on_server("tools/?tool=greet")),
    Shot("tool-json", on_server("tools/?tool=search_notes"), prepare=click("[name=_switch][value=json]")),
    Shot("tool-refused", on_server("tools/?tool=greet"), prepare=run_without_arguments),
    Shot("tool-running", on_server("tools/?tool=countdown"), prepare=start_countdown),
    Shot("tool-image", on_server("tools/?tool=draw")),
    Shot("tool-error", on_server("tools/?tool=fail_on_purpose")),
    Shot("tool-destructive", on_server("tools/?tool=forget_notes")),
    Shot("server-menu", on_server("tools/"), prepare=click("[aria-label='More actions']")),
    Shot("resources", on_server("resources/")),
    Shot("resource-read", on_server("resources/?uri=demo://readme"), prepare=read_resource),
    Shot("resource-refused", on_server("resources/?uri=demo://nothing"), prepare=read_nothing),
    Shot("resource-template", on_server("resources/?template=demo://notes/%7Bname%7D"), prepare=type_argument),
    Shot("prompts", on_server("prompts/")),
    Shot("prompt-suggestions", on_server("prompts/?prompt=summarise"), prepare=type_argument),
    Shot("prompt-errors", on_server("prompts/?prompt=summarise"), prepare=get_without_arguments),
    Shot("prompt-got", on_server("prompts/?prompt=explain&arg.topic=tools"), prepare=get_prompt),
    Shot("tool-changed", on_server("tools/?tool=add"), prepare=open_removed),
    Shot("definition-versions", on_server("definitions/tool/?key=add")),
    Shot("definition-removed", on_server("definitions/tool/?key=subtract")),
    Shot("logs", on_server("logs/")),
    Shot("logs-paused", on_server("logs/"), prepare=click("[data-log-pause]")),
    Shot("logs-none", on_server("logs/?text=nothing-has-this-text")),
    Shot("history", on_server("history/")),
    Shot("history-all", on_server("history/?method=all")),
    Shot("settings", on_server("settings/")),
    Shot("settings-tested", on_server("settings/"), prepare=try_connection),
    Shot("settings-conflict", on_server("settings/"), prepare=save_after_somebody_else, allow=("409",)),
    Shot("settings-websocket", lambda world: f"/servers/{world.websocket}/settings/"),
    Shot("server-websocket", lambda world: f"/servers/{world.websocket}/tools/"),
    Shot("server-archived", lambda world: f"/servers/{world.archived}/tools/"),
    Shot("archived-settings", lambda world: f"/servers/{world.archived}/settings/"),
    Shot("info", on_server("info/")),
    Shot("sessions", at("/sessions/")),
    Shot("server-failing", lambda world: f"/servers/{world.failing}/info/"),
    Shot("server-waiting", lambda world: f"/servers/{world.labelled}/tools/"),
    Shot("server-paused", lambda world: f"/servers/{world.paused}/tools/"),
    Shot("clone", on_server("clone/")),
    Shot("disable", on_server("disable/")),
    Shot("archive", on_server("archive/")),
    Shot("delete", on_server("delete/")),
    Shot("call", lambda world: f"/calls/{world.succeeded}/"),
    Shot("call-failed", lambda world: f"/calls/{world.failed}/"),
    Shot("subscriptions", at("/subscriptions/")),
    Shot("subscriptions-none", at("/subscriptions/?text=nothing-has-this-name")),
    Shot("subscription", lambda world: f"/subscriptions/{world.watched}/"),
    Shot("subscription-compared", lambda world: f"/subscriptions/{world.watched}/?version=3&against=1"),
    Shot("subscription-content", lambda world: f"/subscriptions/{world.watched}/?view=content"),
    Shot("subscription-first", lambda world: f"/subscriptions/{world.watched}/?version=1"),
    Shot("subscription-refused", lambda world: f"/subscriptions/{world.refused}/"),
    Shot("subscription-settings", lambda world: f"/subscriptions/{world.watched}/settings/"),
    Shot("subscription-reserved", lambda world: f"/subscriptions/{world.watched}/", guest=True),
    Shot("subscription-delete", lambda world: f"/subscriptions/{world.watched}/delete/"),
    Shot("inbox-empty", at("/inbox/"), Stage.EMPTY),
    Shot("inbox", at("/inbox/")),
    Shot("question-form", question("form")),
    Shot("question-refused", question("form"), prepare=send_nothing, allow=("422",)),
    Shot("question-secret", question("secret")),
    Shot("question-visit", question("visit")),
    Shot("question-trap", question("trap")),
    Shot("question-model", question("model")),
    Shot("question-over", question("over")),
    Shot("question-for-a-guest", question("form"), guest=True),
    Shot("credentials-empty", at("/credentials/"), Stage.EMPTY),
    Shot("credentials", at("/credentials/")),
    Shot("credential", lambda world: f"/credentials/{world.credential}/"),
    Shot("credential-delete", lambda world: f"/credentials/{world.credential}/delete/"),
    Shot("credential-add", at("/credentials/add/")),
    Shot("identity", at("/servers/calendar/identity/")),
    Shot("identity-guest", at("/servers/calendar/identity/"), guest=True),
    Shot("identity-add", at("/servers/calendar/identity/credential/")),
    Shot("identity-give-up", at("/servers/calendar/identity/shared/")),
    Shot("credential-certificate", at("/credentials/add/?kind=certificate")),
    Shot("server-add-credentials", at("/servers/add/"), prepare=choose_credential),
    Shot("expected-issuer", lambda world: f"/credentials/for/{world.websocket}/issuer/"),
    Shot("credential-account", at("/credentials/add/?kind=service_account"), Stage.EMPTY),
    Shot(
        "credential-account-refused",
        at("/credentials/add/?kind=service_account"),
        Stage.EMPTY,
        prepare=refuse_account,
        allow=("422",),
    ),
    Shot("server-sign-in", lambda world: f"/servers/{world.websocket}/sign-in/"),
    Shot("sign-in-refused", at("/sign-in/callback/?state=unknown"), allow=("400",)),
    Shot("audit", at("/audit/")),
    Shot("audit-range", at("/audit/?outcome=ok&since=2026-01-01T00:00"), prepare=click("[data-pop] summary")),
    Shot("audit-drawer", at("/audit/"), prepare=open_event),
    Shot("audit-none", at("/audit/?text=nothing-has-this-name")),
    Shot("audit-event", lambda world: f"/audit/{world.audit}/"),
    Shot("palette", at("/"), prepare=open_palette),
    Shot("shortcuts", at("/"), prepare=open_shortcuts),
    Shot("password", at("/accounts/password/change/")),
    Shot("sign-out", at("/accounts/logout/")),
    Shot("bad-request", at("/servers/add/"), prepare=post_too_much, allow=("400",)),
    Shot("forbidden", at("/servers/add/"), guest=True, allow=("403",)),
    Shot("not-found", at("/servers/no-such-server/"), allow=("404",)),
]
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
THEMES = ("light", "dark")
