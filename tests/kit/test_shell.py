"""The shell works for a person: keyboard, palette, theme, drawer, forms."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, Route, expect

Opener = Callable[..., tuple[Page, Any, Any]]


def _page(open_page: Opener, path: str = "pages/kit/", **options: Any) -> Page:
    page, _, _ = open_page(**options)
    page.goto(path)
    return page


def test_the_palette_finds_pages_and_servers_and_opens_one_by_keyboard(open_page: Opener) -> None:
    page = _page(open_page)
    page.keyboard.press("Control+k")
    dialog = page.locator("#palette")
    expect(dialog.get_by_role("option")).to_have_count(6)
    page.keyboard.type("orders")
    expect(dialog.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url("**/servers/")


def test_the_palette_that_is_asked_for_before_the_scripts_have_loaded_opens_with_them(open_page: Opener) -> None:
    page, _, _ = open_page()
    held: list[Route] = []
    page.route("**/js/app*.js", lambda route: held.append(route))
    with page.expect_request("**/js/app*.js"):
        page.goto("pages/kit/", wait_until="commit")
    page.locator("body[data-palette-module]").wait_for(state="attached")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_hidden()
    held[0].continue_()
    expect(page.locator("#palette")).to_be_visible()


def test_enter_in_the_palette_opens_what_answers_the_words_typed_last(open_page: Opener) -> None:
    page = _page(open_page)
    page.keyboard.press("Control+k")
    expect(page.locator("#palette [role=option]")).to_have_count(6)
    held: list[Route] = []
    page.route("**/palette/**", lambda route: held.append(route))
    page.keyboard.insert_text("orders")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.locator("#palette [data-palette-note]")).to_have_text("Searching…")
    assert "/pages/kit/" in page.url
    held[0].continue_()
    page.wait_for_url("**/servers/")


def test_what_was_chosen_in_the_palette_stays_chosen_when_the_search_answers(open_page: Opener) -> None:
    page = _page(open_page)
    held: list[Route] = []
    page.route("**/palette/**", lambda route: held.append(route))
    page.keyboard.press("Control+k")
    options = page.locator("#palette").get_by_role("option")
    expect(options).to_have_count(5)
    page.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    held[0].continue_()
    expect(options).to_have_count(6)
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")


def test_the_palette_still_opens_pages_when_the_search_fails(open_page: Opener) -> None:
    page, complaints, _ = open_page()
    complaints.allow("500")
    page.route("**/palette/**", lambda route: route.fulfill(status=500, body=""))
    page.goto("pages/kit/")
    page.locator("[data-palette-open]").click()
    page.keyboard.type("expl")
    expect(page.locator("#palette [data-palette-note]")).to_contain_text("Server search is not available right now")
    expect(page.locator("#palette").get_by_role("option")).to_have_count(1)
    expect(page.locator("#palette").get_by_role("option")).to_contain_text("Explorer")


def test_single_keys_work_outside_inputs_and_can_be_switched_off(open_page: Opener) -> None:
    page = _page(open_page)
    page.locator("#name").focus()
    page.keyboard.type("?g")
    expect(page.locator("#shortcuts")).not_to_be_visible()
    page.locator("h1").click()
    page.keyboard.press("?")
    expect(page.locator("#shortcuts")).to_be_visible()
    page.locator("[data-single-keys]").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#shortcuts")).not_to_be_visible()


def test_g_a_goes_to_the_explorer_and_j_and_k_walk_its_rows(open_page: Opener) -> None:
    page = _page(open_page)
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/explorer/")
    assert page.locator(".nav-i[aria-current=page]").inner_text() == "Explorer"
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(".tbl tbody tr").nth(1).locator("a").first).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator(".tbl tbody tr").nth(0).locator("a").first).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Search the audit log")).to_be_focused()


def test_no_row_that_gets_the_focus_is_behind_the_bar_at_the_top(open_page: Opener) -> None:
    page = _page(open_page)
    page.evaluate("""() => {
      const rows = Array.from({ length: 60 }, (_, at) => `<tr><td><a href="#${at}">Row ${at}</a></td></tr>`);
      document.querySelector('.wrap').insertAdjacentHTML('afterbegin', `<table class="tbl"><tbody>${rows.join('')}</tbody></table>`);
    }""")
    page.get_by_role("link", name="Row 59").focus()
    covered = """() => document.activeElement.closest('tr').getBoundingClientRect().top
        < document.querySelector('.top').getBoundingClientRect().bottom"""
    for key in ["k"] * 30 + ["Shift+Tab"] * 29:
        page.keyboard.press(key)
        assert not page.evaluate(covered), page.evaluate("document.activeElement.innerText")
    expect(page.get_by_role("link", name="Row 0")).to_be_focused()


def test_ctrl_enter_submits_the_primary_form_from_inside_an_input(open_page: Opener) -> None:
    page = _page(open_page)
    page.locator("#name").press("Control+Enter")
    page.wait_for_url("**/pages/states/?name=a")


SENDING = """() => {
  document.querySelector('.wrap').insertAdjacentHTML('afterbegin', `
    <form method="post" id="sending"><input aria-label="Argument"><button type="submit" data-run>Run it</button></form>`);
  window.sent = 0;
  document.addEventListener('submit', (event) => {
    event.preventDefault();
    window.sent += 1;
  });
}"""


def test_a_double_click_and_a_key_held_down_send_a_form_once(open_page: Opener) -> None:
    page = _page(open_page)
    page.evaluate(SENDING)
    button, field = page.get_by_role("button", name="Run it"), page.get_by_label("Argument")
    button.dblclick()
    assert page.evaluate("window.sent") == 1
    for pressed, keys in ((button, ["Enter"]), (field, ["Enter"]), (field, ["Control", "Enter"])):
        pressed.focus()
        before = page.evaluate("window.sent")
        for key in [*keys, "Enter", "Enter"]:
            page.keyboard.down(key)
        for key in keys:
            page.keyboard.up(key)
        assert page.evaluate("window.sent") == before + 1, keys


def test_ctrl_enter_sends_no_other_form_while_one_is_on_its_way(open_page: Opener) -> None:
    page = _page(open_page)
    page.evaluate(SENDING)
    for inert, sent in (("true", 0), ("false", 1)):
        page.evaluate(f"document.getElementById('sending').inert = {inert}")
        page.keyboard.press("Control+Enter")
        assert page.evaluate("window.sent") == sent


def test_ctrl_enter_on_a_link_or_in_another_form_does_not_send_the_form_of_the_page(open_page: Opener) -> None:
    page = _page(open_page)
    page.evaluate(SENDING)
    page.evaluate("""() => {
      document.querySelector('.wrap').insertAdjacentHTML('beforeend', `
        <a href="#elsewhere">Elsewhere</a><form id="filter"><input aria-label="Filter"></form>`);
      window.forms = [];
      document.addEventListener('submit', (event) => window.forms.push(event.target.id), true);
      document.addEventListener('click', (event) => event.preventDefault()); // a link would open a tab
    }""")
    link, button = page.get_by_role("link", name="Elsewhere"), page.get_by_role("button", name="Copy", exact=True)
    for pressed in (link, button, page.get_by_label("Filter"), page.get_by_label("Argument")):
        pressed.press("Control+Enter")
    assert page.evaluate("window.forms") == ["filter", "sending"]
    page.locator("#main").press("Control+Enter")
    assert page.evaluate("window.forms.length") == 3


def test_leaving_a_changed_form_is_asked_about_and_an_untouched_one_is_not(open_page: Opener) -> None:
    page = _page(open_page)
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.goto("pages/kit/")
    assert asked == []
    page.locator("#name").fill("changed")
    page.goto("pages/states/")
    assert asked == ["beforeunload"]


def test_the_theme_follows_the_system_until_one_is_chosen_and_then_stays(open_page: Opener) -> None:
    page = _page(open_page, theme="dark")
    root = page.locator("html")
    expect(root).to_have_attribute("data-bs-theme", "dark")
    page.get_by_role("button", name="Color theme").click()
    page.get_by_role("button", name="Light").click()
    expect(root).to_have_attribute("data-bs-theme", "light")
    page.reload()
    expect(root).to_have_attribute("data-bs-theme", "light")


def test_the_phone_opens_its_navigation_as_a_drawer_and_escape_closes_it(open_page: Opener) -> None:
    page = _page(open_page, width=390)
    expect(page.locator(".side")).not_to_be_visible()
    page.get_by_role("button", name="Open navigation").click()
    expect(page.locator("#drawer .side")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".side")).not_to_be_visible()
    page.get_by_role("button", name="Open navigation").click()
    page.get_by_role("button", name="Close navigation").click()
    expect(page.locator(".side")).not_to_be_visible()
    page.get_by_role("button", name="Open navigation").click()
    page.locator("#drawer").get_by_role("link", name="Explorer").click()
    page.wait_for_url("**/explorer/")


def test_copying_says_so(open_page: Opener) -> None:
    page = _page(open_page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("[data-copy]")).to_have_attribute("data-copied", "Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "copied text"


def test_what_is_still_on_its_way_is_copied_when_it_comes(open_page: Opener) -> None:
    page = _page(open_page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("""() => {
        document.querySelector('#snapshot').dataset.fullUrl = '/late/';
        document.querySelector('[data-copy]').dataset.copyFrom = '#snapshot';
        navigator.clipboard.writeText = () => Promise.reject(new Error('too late for this browser'));
    }""")
    held: list[Route] = []
    page.route("**/late/", lambda route: held.append(route))
    with page.expect_request("**/late/"):
        page.get_by_role("button", name="Copy").click()
    page.wait_for_timeout(100)
    held[0].fulfill(body="all of it")
    expect(page.locator("[data-copy]")).to_have_attribute("data-copied", "Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "all of it"


def test_copying_without_the_clipboard_api_keeps_the_focus_and_takes_no_sign_in_page(open_page: Opener) -> None:
    page = _page(open_page)
    page.evaluate("Object.defineProperty(window, 'isSecureContext', { value: false })")
    copy = page.get_by_role("button", name="Copy")
    copy.press("Enter")
    expect(copy).to_have_attribute("data-copied", "Copied")
    expect(copy).to_be_focused()
    expect(copy).not_to_have_attribute("data-copied", "Copied")
    page.evaluate("""() => {
        document.querySelector('#snapshot').dataset.fullUrl = '/pages/redirected/';
        document.querySelector('[data-copy]').dataset.copyFrom = '#snapshot';
        const { fetch } = window;
        window.fetch = async (...given) => Object.defineProperty(await fetch(...given), 'redirected', { value: true });
    }""")
    page.route("**/redirected/", lambda route: route.fulfill(body="Sign in"))
    copy.press("Enter")
    expect(copy).to_have_attribute("data-copied", "Not copied: you are signed out")


def test_a_palette_whose_file_is_gone_says_so(open_page: Opener) -> None:
    page, complaints, _ = open_page()
    complaints.allow("404")
    page.route("**/js/palette*.js", lambda route: route.fulfill(status=404))
    page.goto("pages/kit/")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_contain_text("Search could not be loaded. Reload the page.")


def test_text_that_is_marked_beyond_the_edge_of_a_dialog_leaves_it_open(open_page: Opener) -> None:
    page = _page(open_page)
    page.keyboard.press("Control+k")
    palette = page.locator("#palette")
    field = palette.locator("input")
    field.fill("words")
    box = field.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(5, box["y"], steps=4)
    page.mouse.up()
    expect(palette).to_be_visible()
    page.mouse.click(5, 5)
    expect(palette).to_be_hidden()


def test_what_is_chosen_is_seen_with_forced_colours(open_page: Opener) -> None:
    page = _page(open_page)
    page.emulate_media(forced_colors="active")
    page.keyboard.press("Control+k")
    for choices in (page.locator("#palette [role=option]"), page.locator(".seg [role=tab]")):
        expect(choices.nth(0)).to_have_css("outline-style", "solid")
        expect(choices.nth(1)).to_have_css("outline-style", "none")


def test_on_paper_a_page_is_whole_without_what_can_only_be_pressed(open_page: Opener) -> None:
    page = _page(open_page, theme="dark")
    page.evaluate("""() => document.querySelector('.wrap').insertAdjacentHTML('beforeend', `
      <div class="chart-table"><div class="scroll" id="rows">${'<p>Row</p>'.repeat(60)}</div></div>`)""")
    hidden = "rows => rows.scrollHeight - rows.clientHeight"
    assert page.locator("#rows").evaluate(hidden) > 0
    page.emulate_media(media="print")
    assert page.locator("#rows").evaluate(hidden) <= 0
    expect(page.locator(".side")).to_be_hidden()
    assert page.evaluate("document.querySelector('main').offsetWidth") == 1440
    expect(page.locator("html")).to_have_css("color-scheme", "light")
    expect(page.locator("body")).to_have_css("color", "rgb(18, 22, 29)")


def test_the_end_of_a_page_can_be_scrolled_out_from_under_the_messages(open_page: Opener) -> None:
    page = _page(open_page, "messages/")
    expect(page.locator("[data-toast=error]")).to_be_visible()
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    clear = """() => document.querySelector('main').lastElementChild.getBoundingClientRect().bottom
        <= document.querySelector('[data-toasts]').getBoundingClientRect().top"""
    page.wait_for_function(clear)


def test_success_toasts_leave_and_errors_stay_until_dismissed(open_page: Opener) -> None:
    page = _page(open_page, "messages/")
    expect(page.locator("[data-toast=success]")).to_have_count(0, timeout=8_000)
    error = page.locator("[data-toast=error]")
    expect(error).to_be_visible()
    error.get_by_role("button", name="Dismiss").click()
    expect(error).to_have_count(0)


TOASTS = """async (toasts) => {
  const { toast } = await import('/static/js/toast.js');
  for (const one of toasts) toast(one);
}"""


def test_messages_of_a_page_load_are_announced(open_page: Opener) -> None:
    """A live region says what is added to it, not what stood there when the page came."""
    page, _, _ = open_page()
    page.add_init_script("""window.added = [];
      document.addEventListener('DOMContentLoaded', () => {
        for (const region of document.querySelectorAll('[aria-live]')) {
          new MutationObserver((found) => {
            for (const { addedNodes } of found) for (const node of addedNodes) window.added.push([region.ariaLive, node.innerText.trim()]);
          }).observe(region, { childList: true });
        }
      });""")
    page.goto("messages/")
    page.wait_for_function("() => window.added.length === 2")
    assert sorted(page.evaluate("window.added")) == [
        ["assertive", "notion did not answer"],
        ["polite", "orders-api registered"],
    ]


def test_a_message_with_a_link_stays_as_does_one_with_the_focus(open_page: Opener) -> None:
    page = _page(open_page)
    with_link = {"title": "Saved as Morning", "tone": "ok", "action": {"label": "Saved calls", "url": "/servers/"}}
    page.evaluate(TOASTS, [with_link, {"title": "Copied"}, {"title": "Noted"}])
    page.locator(".toast", has_text="Copied").get_by_role("button").focus()
    page.locator(".toast", has_text="Copied").hover()
    page.locator("h1").hover()
    expect(page.locator(".toast", has_text="Noted")).to_have_count(0, timeout=8_000)
    page.wait_for_timeout(1_500)
    expect(page.locator(".toast")).to_have_count(2)


def test_every_message_can_be_reached_in_a_small_window_and_its_focus_passes_on(open_page: Opener) -> None:
    page = _page(open_page)
    page.set_viewport_size({"width": 320, "height": 256})
    page.evaluate(TOASTS, [{"title": f"Warning {number}", "tone": "warn"} for number in range(5)])
    page.evaluate(TOASTS, [{"title": f"Error {number}", "tone": "bad"} for number in range(5)])
    page.get_by_role("link", name="Skip to notifications").press("Enter")
    page.keyboard.press("Tab")
    first = page.locator(".toast").first.get_by_role("button", name="Dismiss")
    expect(first).to_be_focused()
    expect(first).to_be_in_viewport(ratio=1)
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_have_count(9)
    expect(page.locator(".toast").first.get_by_role("button", name="Dismiss")).to_be_focused()
    page.get_by_label("Name", exact=True).focus()
    page.locator(".toast").last.get_by_role("button", name="Dismiss").focus()
    for _ in range(9):
        page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_have_count(0)
    expect(page.get_by_label("Name", exact=True)).to_be_focused()


def test_a_button_whose_request_is_on_its_way_keeps_the_focus_and_sends_nothing_more(open_page: Opener) -> None:
    page = _page(open_page)
    page.evaluate(SENDING)
    button = page.get_by_role("button", name="Run it")
    button.focus()
    page.evaluate("""async () => {
      const { hold } = await import('/static/js/busy.js');
      window.end = hold(document.querySelector('[data-run]'));
    }""")
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Enter")
    expect(button).to_be_focused()
    assert page.evaluate("window.sent") == 0
    page.evaluate("window.end()")
    page.keyboard.press("Enter")
    assert page.evaluate("window.sent") == 1


def test_a_failed_sign_in_is_reported_at_once_and_the_password_can_be_shown(open_page: Opener) -> None:
    page = _page(open_page, "accounts/login/", signed_in=False)
    page.get_by_label("Username").fill("operator")
    page.locator("#id_password").fill("wrong")
    page.get_by_role("button", name="Show password").click()
    expect(page.locator("#id_password")).to_have_attribute("type", "text")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Sign in").click()
    summary = page.get_by_role("alert")
    expect(summary).to_be_focused()
    expect(summary).to_contain_text("not correct")


def test_signing_in_leads_to_the_overview_and_signing_out_back(open_page: Opener) -> None:
    page = _page(open_page, "accounts/login/", signed_in=False)
    page.get_by_label("Username").fill("operator")
    page.locator("#id_password").fill("correct horse battery")
    page.keyboard.press("Enter")
    expect(page.locator(".nav-i[aria-current=page]")).to_have_text("Overview")
    page.wait_for_load_state("load")  # a script builds the menu
    page.get_by_role("button", name="Account menu").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/accounts/login/")


def test_a_menu_opens_walks_and_closes_by_keyboard_and_gives_the_focus_back(open_page: Opener) -> None:
    page = _page(open_page)
    toggle = page.get_by_role("button", name="Account menu")
    toggle.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("a.dropdown-item", has_text="Your account")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("button", name="Sign out")).to_be_focused()
    page.keyboard.press("Escape")
    expect(toggle).to_be_focused()
    expect(page.get_by_role("button", name="Sign out")).not_to_be_visible()


def test_only_one_menu_is_open_and_a_click_elsewhere_closes_it(open_page: Opener) -> None:
    page = _page(open_page)
    page.get_by_role("button", name="Account menu").click()
    page.get_by_role("button", name="Color theme").click()
    expect(page.get_by_role("button", name="Sign out")).not_to_be_visible()
    expect(page.get_by_role("button", name="Dark")).to_be_in_viewport()
    page.locator("h1").click()
    expect(page.get_by_role("button", name="Dark")).not_to_be_visible()


def test_tabs_change_by_click_and_by_arrow(open_page: Opener) -> None:
    page = _page(open_page)
    page.get_by_role("tab", name="Second").click()
    expect(page.get_by_text("second pane")).to_be_visible()
    expect(page.get_by_text("first pane")).not_to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="First")).to_be_focused()
    expect(page.get_by_text("first pane")).to_be_visible()


#: a row whose first cell takes the whole line, as one with buttons does
LONE_END = """() => {
  const row = document.querySelector('.tbl tbody tr');
  const [whole, end] = ['m', 'm r'].map((css) => Object.assign(document.createElement('td'), { className: css }));
  whole.append(Object.assign(document.createElement('a'), { className: 'btn', textContent: 'Cancel' }));
  end.append('107 not delivered');
  row.replaceChildren(whole, end);
  const right = (element) => element.getBoundingClientRect().right;
  return right(whole) - right(end);
}"""


def test_on_a_phone_what_ends_a_row_is_at_its_edge_also_alone_on_its_line(open_page: Opener) -> None:
    page = _page(open_page, "explorer/", width=390)
    assert abs(page.evaluate(LONE_END)) < 1


def test_a_selected_row_stays_marked_under_the_pointer(open_page: Opener) -> None:
    page = _page(open_page, "explorer/")
    row = page.locator(".tbl tbody tr").first
    row.evaluate("row => row.setAttribute('aria-selected', 'true')")
    colour = "async cell => { await Promise.all(document.getAnimations().map(one => one.finished)); return getComputedStyle(cell).backgroundColor; }"
    marked = row.locator("td").last.evaluate(colour)
    row.hover()
    assert row.locator("td").last.evaluate(colour) == marked, marked


ADD_TIME = """() => {
  document.documentElement.dataset.utc = 'true';
  const time = Object.assign(document.createElement('time'), { id: 'late', dateTime: '2026-11-30T23:58:12.004Z' });
  time.dataset.time = 'exact';
  document.querySelector('main').append(time);
}"""


def test_a_page_that_is_open_over_midnight_gives_the_times_of_yesterday_their_day(open_page: Opener) -> None:
    page, _, _ = open_page()
    page.clock.install(time="2026-11-30T23:59:30Z")
    page.goto("pages/kit/")
    page.evaluate(ADD_TIME)
    expect(page.locator("#late")).to_have_text("23:58:12.004")
    page.clock.run_for(42_000)
    expect(page.locator("#late")).to_have_text("30 Nov, 23:58:12.004")


def test_a_zone_that_is_not_the_browsers_is_shown(open_page: Opener) -> None:
    page = _page(open_page)
    shown = page.locator("[data-zone-shown]")
    expect(shown).to_be_hidden()
    page.evaluate(
        "document.documentElement.dataset.zone = 'Asia/Kathmandu'; dispatchEvent(new StorageEvent('storage'))"
    )
    expect(shown).to_have_text("Times in GMT+5:45")
    expect(shown).to_be_visible()


def test_what_is_announced_while_a_dialog_is_open_is_in_the_dialog(open_page: Opener) -> None:
    page = _page(open_page)
    page.keyboard.press("Control+k")
    expect(page.locator("#palette [data-announced]")).to_be_attached()
    page.keyboard.press("Escape")
    expect(page.locator("body > [data-announced]")).to_be_attached()
