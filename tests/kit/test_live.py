"""The tab's socket works against a scripted peer: topics, order, replies, reconnects."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tests.kit.peer import Peer

Opener = Callable[..., tuple[Page, Any, Peer]]


def _live_page(open_page: Opener, **options: Any) -> tuple[Page, Peer]:
    page, _, peer = open_page(**options)
    page.goto("pages/kit/")
    expect(page.locator("[data-live-pill]")).to_contain_text("Live · ")
    return page, peer


def test_a_tab_says_hello_with_its_ticket_and_subscribes_from_what_the_page_shows(open_page: Opener) -> None:
    _, peer = _live_page(open_page)
    assert peer.heard[0] == {"op": "hello", "ticket": "test-ticket", "v": 1}
    assert peer.said("sub")[0]["topics"] == {"server.u1": 3}


def test_a_snapshot_is_morphed_in_and_an_older_one_is_dropped(open_page: Opener) -> None:
    page, peer = _live_page(open_page)
    html = "<p>version {}</p><details><summary>more</summary><p>inside</p></details>"
    peer.say({"t": "server.u1", "seq": 5, "kind": "session", "rows": [], "html": html.format(5)})
    expect(page.locator("#snapshot")).to_contain_text("version 5")
    page.locator("#snapshot summary").click()
    peer.say({"t": "server.u1", "seq": 4, "kind": "session", "rows": [], "html": html.format(4)})
    peer.say({"t": "server.u1", "seq": 6, "kind": "session", "rows": [], "html": html.format(6)})
    expect(page.locator("#snapshot")).to_contain_text("version 6")
    expect(page.get_by_text("inside")).to_be_visible()


def test_a_page_keeps_no_more_cards_of_ended_calls_than_it_can_follow(open_page: Opener) -> None:
    page, peer = _live_page(open_page)
    page.evaluate("""async () => {
        document.querySelector('.wrap').insertAdjacentHTML('beforeend', '<div id="results" data-live="u1"></div>');
        const { addCard } = await import('/static/js/call-cards.js');
        for (let number = 1; number <= 120; number += 1) {
            const state = number === 1 ? 'sent' : 'succeeded';
            addCard(`c${number}`, 1, `<article data-call-state="${state}">Call</article>`, undefined, number);
        }
    }""")
    kept = [f"c{number}" for number in (*range(120, 90, -1), 1)]
    shown = page.locator("#results .call-slot").evaluate_all("slots => slots.map(slot => slot.id)")
    assert shown == [f"call-{uid}" for uid in kept]
    followed = {topic for message in peer.said("sub") for topic in message["topics"] if topic.startswith("call.")}
    left = {topic for message in peer.said("unsub") for topic in message["topics"]}
    assert followed - left == {f"call.{uid}" for uid in kept}


def test_after_a_lost_connection_a_tab_asks_for_what_it_missed(open_page: Opener) -> None:
    page, peer = _live_page(open_page)
    peer.say({"t": "server.u1", "seq": 20, "kind": "session", "rows": [], "html": "<p>version 20</p>"})
    expect(page.locator("#snapshot")).to_contain_text("version 20")
    peer.close(1011)
    expect(page.locator("[data-live-pill]")).to_have_attribute("data-state", "reconnecting")
    expect(page.locator("[data-live-pill]")).to_have_attribute("data-state", "live")
    assert peer.connections == 2
    assert peer.said("sub")[-1]["topics"] == {"server.u1": 20}


def test_a_tab_over_a_restored_database_says_so_and_learns_what_comes_again(open_page: Opener) -> None:
    page, peer = _live_page(open_page)
    page.evaluate("""async () => {
        const { live } = await import('/static/js/live.js');
        window.told = [];
        live.on('audit', 'event', (frame) => window.told.push(...frame.rows.map((row) => row.seq)), 3);
    }""")
    peer.say({"t": "audit", "seq": 20, "kind": "event", "rows": [{"seq": 20}]})
    peer.say({"t": "server.u1", "seq": 20, "kind": "session", "rows": [], "html": "<p>version 20</p>"})
    expect(page.locator("#snapshot")).to_contain_text("version 20")
    peer.newest = {"audit": 10}
    peer.close(1011)
    expect(page.get_by_text("This page is out of date")).to_be_visible()
    peer.say({"t": "audit", "seq": 11, "kind": "event", "rows": [{"seq": 11}]})
    peer.say({"t": "server.u1", "seq": 9, "kind": "session", "rows": [], "html": "<p>version 9</p>"})
    expect(page.locator("#snapshot")).to_contain_text("version 9")
    assert page.evaluate("window.told") == [20, 11]


def test_a_signed_out_tab_says_so_and_does_not_try_again(open_page: Opener) -> None:
    page, peer = _live_page(open_page)
    peer.close(4401)
    link = page.locator("[data-live-pill] a")
    expect(link).to_have_text("Signed out · sign in")
    assert link.get_attribute("href") == "/accounts/login/?next=%2Fpages%2Fkit%2F"
    expect(page.locator("[data-live-pill]")).to_have_attribute("aria-live", "polite")
    page.wait_for_timeout(1_200)
    assert peer.connections == 1


def test_on_a_phone_the_pill_has_words_for_all_that_is_not_live(open_page: Opener) -> None:
    page, peer = _live_page(open_page, width=320)
    words = page.locator("[data-live-words]")
    assert words.evaluate("words => words.offsetWidth") <= 1
    peer.say({"op": "pipeline", "state": "database", "silent": 0, "workers": 1, "age_ms": 0})
    expect(words).to_have_text("Delayed: database unreachable")
    assert words.evaluate("words => words.offsetWidth") > 60
    expect(page.locator("[data-live-pill]")).to_contain_text("No updates until it is reachable again.")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_what_had_the_focus_and_is_gone_leaves_it_to_the_link_of_its_card(open_page: Opener) -> None:
    page, peer = _live_page(open_page)
    card = '<h2>Call <a href="#9">#9</a></h2>{}'
    button = '<form method="post"><button>Cancel it</button></form>'
    peer.say({"t": "server.u1", "seq": 5, "kind": "session", "rows": [], "html": card.format(button)})
    page.get_by_role("button", name="Cancel it").focus()
    peer.say({"t": "server.u1", "seq": 6, "kind": "session", "rows": [], "html": card.format("")})
    expect(page.get_by_role("link", name="#9")).to_be_focused()


def test_a_request_gets_its_own_answer_and_fails_when_the_connection_is_lost(open_page: Opener) -> None:
    page, peer = _live_page(open_page)
    page.evaluate("""async () => {
        const { live } = await import('/static/js/live.js');
        window.first = live.request({ op: 'call', server: 'u1', tool: 'echo' }).then((m) => m.op, (e) => e.message);
        window.second = live.request({ op: 'call', server: 'u1', tool: 'slow' }).then((m) => m.op, (e) => e.message);
    }""")
    first, second = peer.said("call")
    peer.say({"op": "rejected", "ref": second["ref"] + 100, "message": "of nobody"})
    peer.say({"op": "accepted", "ref": first["ref"], "call": "c1"})
    assert page.evaluate("window.first") == "accepted"
    peer.close(1011)
    assert page.evaluate("window.second") == "the connection was lost"
    assert page.evaluate(
        "import('/static/js/live.js').then(({ live }) => live.request({ op: 'x' }).catch((e) => e.message))"
    ) in {
        "there is no live connection",
        "no answer in time",
    }


def test_a_refused_topic_is_reported_to_its_page_and_asked_for_again_by_a_new_connection_only(
    open_page: Opener,
) -> None:
    page, peer = _live_page(open_page)
    page.evaluate("""async () => {
        const { live } = await import('/static/js/live.js');
        live.on('server.u2', 'denied', () => { document.title = 'denied'; });
    }""")
    peer.say({"op": "denied", "t": "server.u2"})
    expect(page).to_have_title("denied")
    before = len(peer.said("sub"))
    page.evaluate("import('/static/js/live.js').then(({ live }) => live.scan(document.body))")
    assert len(peer.said("sub")) == before
    peer.close(1011)
    expect(page.locator("[data-live-pill]")).to_have_attribute("data-state", "live")
    assert "server.u2" in peer.said("sub")[-1]["topics"]


def test_a_page_that_loses_a_permission_says_so_and_goes_on_when_it_is_back(open_page: Opener) -> None:
    page, peer = _live_page(open_page)
    peer.say({"t": "server.u1", "seq": 20, "kind": "session", "rows": [], "html": "<p>version 20</p>"})
    expect(page.locator("#snapshot")).to_contain_text("version 20")
    peer.say({"op": "denied", "t": "server.u1", "lacks_permission": True})
    told = page.get_by_text("Your permissions changed")
    expect(told).to_have_count(1)
    expect(page.get_by_role("link", name="Reload")).to_be_visible()
    peer.say({"op": "permissions"})
    peer.say({"t": "server.u1", "seq": 21, "kind": "session", "rows": [], "html": "<p>version 21</p>"})
    expect(page.locator("#snapshot")).to_contain_text("version 21")
    assert peer.said("sub")[-1]["topics"] == {"server.u1": 20}
    expect(told).to_have_count(1)


def test_a_topic_beyond_the_limit_is_said_and_joined_when_another_one_leaves(open_page: Opener) -> None:
    page, peer = _live_page(open_page)
    page.evaluate("""async () => {
        const { live } = await import('/static/js/live.js');
        window.leave = live.on('server.u2', '*', () => {});
        live.on('server.u3', '*', () => {});
    }""")
    peer.say({"op": "denied", "t": "server.u3", "why": "Limit: 2 topics per page."})
    expect(page.get_by_text("Limit: 2 topics per page.")).to_be_visible()
    page.evaluate("""async () => {
        const { live } = await import('/static/js/live.js');
        window.leave();
        live.scan(document.body);
    }""")
    assert peer.said("unsub")[-1]["topics"] == ["server.u2"]
    assert peer.said("sub")[-1]["topics"] == {"server.u3": None}


def test_a_call_that_is_too_large_is_not_sent_and_the_connection_stays(open_page: Opener) -> None:
    page, _, peer = open_page()
    peer.welcome = {"largest": {"bytes": 1000, "words": "This call is too large."}}
    page.goto("pages/kit/")
    expect(page.locator("[data-live-pill]")).to_contain_text("Live · ")
    said = page.evaluate("""async () => {
        const { live, NotSent } = await import('/static/js/live.js');
        const refused = await live.request({ op: 'call', json: 'ä'.repeat(500) }).catch((problem) => problem);
        return [refused instanceof NotSent, refused.message];
    }""")
    assert said == [True, "This call is too large. Nothing was sent and your input is kept."]
    assert peer.said("call") == []
    assert peer.connections == 1


def test_a_page_that_is_older_than_the_server_says_so_once(open_page: Opener) -> None:
    page, _, peer = open_page()
    told = page.get_by_text("mcpadmin was updated")
    for build, times in (("a", 0), ("a", 0), ("b", 1), ("c", 1)):
        peer.welcome = {"build": build}
        if peer.connections:
            peer.close(1011)
            expect(page.locator("[data-live-pill]")).to_have_attribute("data-state", "reconnecting")
        else:
            page.goto("pages/kit/")
        expect(page.locator("[data-live-pill]")).to_contain_text("Live · ")
        expect(told).to_have_count(times)


def test_a_tab_that_gets_no_connection_names_the_limit_and_what_to_do(open_page: Opener) -> None:
    page, _, peer = open_page()
    peer.refusal = (4030, "Too many open tabs. Limit: 10 live connections.")
    page.goto("pages/kit/")
    notice = page.locator("[data-offline] .notice")
    expect(notice).to_contain_text("No live updates in this tab", timeout=10_000)
    expect(notice).to_contain_text("Too many open tabs. Limit: 10 live connections. Close another tab, then reconnect.")
    expect(notice.get_by_text("reconnects automatically")).to_be_hidden()
    peer.refusal = None
    notice.get_by_role("button", name="Reconnect now").click()
    expect(notice).to_be_hidden()
    expect(page.locator("[data-live-pill]")).to_have_attribute("data-state", "live")
