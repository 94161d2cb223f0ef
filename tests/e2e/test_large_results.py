"""Large and binary results in real Chromium: shown or downloaded as what their bytes are. `-s` prints the times."""

import time

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.walk import Walk
from tests.peers.media_server import JSON_BYTES, PDF_BYTES
from tests.peers.peers import peer_command

pytestmark = [pytest.mark.browser, pytest.mark.long]
WATCH = """() => {
  window.longest = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
  }).observe({ type: "longtask", buffered: true });
}"""
WIDTH = "(where) => document.querySelector(where)?.naturalWidth"
FETCH = """async ([url, range]) => {
  const answer = await fetch(url, { headers: range ? { Range: range } : {} });
  const names = ["content-type", "content-disposition", "content-range", "content-security-policy", "cache-control"];
  const size = (await answer.arrayBuffer()).byteLength;
  return { status: answer.status, size, ...Object.fromEntries(names.map((name) => [name, answer.headers.get(name)])) };
}"""


def answered(ada: Walk, number: int, kind: str) -> Locator:
    """The card of call `number`, once it has ended."""
    ada.open_tool("media", "answer")
    ada.page.evaluate(WATCH)
    ada.page.locator("[name='arg:/kind']").select_option(label=kind)
    ada.run_tool()
    card = ada.result()
    expect(card.locator("h2")).to_contain_text(f"#{number}")
    expect(card.locator("article[data-call-state=succeeded]")).to_be_visible()
    return card


def test_a_picture_a_document_and_json_of_several_megabytes_are_shown_or_downloaded_as_what_they_are(
    own_stack, walker
) -> None:
    ada = walker(own_stack, signed_in=True)
    frames: list[int] = []
    ada.page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(len(frame))))
    ada.register_stdio("Media", *peer_command("media"))
    ada.wait_for_state("Ready")
    for number, kind in enumerate(("png", "pdf", "json", "structured", "webm", "hostile", "many"), start=1):
        started = time.monotonic()
        card = answered(ada, number, kind)
        spent, longest = time.monotonic() - started, ada.page.evaluate("window.longest")
        link = card.get_by_label("Download content").first
        match kind:
            case "png":
                ada.until(lambda: ada.page.evaluate(WIDTH, "#results img") == 1000)
            case "pdf":
                found = ada.page.evaluate(FETCH, [link.get_attribute("href"), ""])
                assert (found["status"], found["size"], found["content-type"]) == (
                    200,
                    PDF_BYTES + 15,
                    "application/pdf",
                )
                assert found["content-disposition"] == 'attachment; filename="report.pdf"'
                expect(card.get_by_role("link", name="Open in new tab")).to_have_attribute("target", "_blank")
            case "json":
                expect(card).to_contain_text("First 64.0 kB of 6.")
                text = card.get_by_role("link", name="Download the full text").first
                assert card.locator("pre[data-full-url]").first.get_attribute("data-full-url") == text.get_attribute(
                    "href"
                )
                found = ada.page.evaluate(FETCH, [text.get_attribute("href"), ""])
                assert found["content-type"] == "application/json"
                assert found["size"] > JSON_BYTES * 0.9
            case "structured":
                whole = card.get_by_label("Download result").get_attribute("href") or ""
                found = ada.page.evaluate(FETCH, [whole.replace("result.json", "structured.json"), ""])
                assert found["size"] > JSON_BYTES * 0.9
            case "webm":
                source = card.locator("video").get_attribute("src")
                found = ada.page.evaluate(FETCH, [source, "bytes=0-3"])
                assert (found["status"], found["size"], found["content-type"]) == (206, 4, "video/webm")
            case "hostile":
                expect(card).to_contain_text("Declared as image/png, but the data is HTML or SVG.")
                expect(card).to_contain_text("Declared as image/jpeg, but the data is PNG.")
                expect(card).to_contain_text("Declared as application/pdf, but the data is HTML or SVG.")
                expect(card).to_contain_text("Image whose data is not valid base64.")
                expect(card.get_by_text("Empty: the server sent 0 bytes.")).to_have_count(2)
                expect(card.locator("img")).to_have_count(1)
                assert ada.page.evaluate("window.pwned") is None
            case "many":
                expect(card).to_contain_text("9900 more blocks in the raw result.")
        print(f"{kind}: opened, run and shown in {spent:.2f} s, longest task {longest:.0f} ms, frame {max(frames)} B")
        assert max(frames) < 1_000_000
        frames.clear()
    ada.open("/servers/media/resources/?uri=media://png")
    ada.page.get_by_role("button", name="Read now").click()
    ada.until(lambda: ada.page.evaluate(WIDTH, "#resource-content img") == 1000)
