"""Thirteen tasks in mcpadmin and in MCP Inspector, each as a person does it, with the clicks that it takes.

The pages count, not the script: a listener in the browser reports each pointer press and each Enter. A press that only
puts the cursor into a field to type in is not a click; the fields typed into have a number of their own. An option of a
select element counts as the second press that it is for a person.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError

from playwright.sync_api import Browser, Locator, Page, expect

from tests.peers.peers import free_port, inspector, peer_command

READY_SECONDS = 60
CONNECT = "Connect a stdio server"
FIRST = "First call after connecting"
SECOND = "Second call, one argument changed"
AGAIN = "Run the same call again"
EDIT = "Edit an earlier call and run it"
MESSAGES = "See a call's JSON-RPC messages, copy one"
READ = "Read a resource"
SUBSCRIBE = "Subscribe to it and see an update"
PROMPT = "Get a prompt with an argument"
ANSWER = "Run a tool and answer its elicitation"
CONFIGURATION = "Copy the server's configuration"
TASK = "Run a tool as a task and watch it"
LEVEL = "Change the log level and see a line"
TASKS = (
    *(CONNECT, FIRST, SECOND, AGAIN, EDIT, MESSAGES, READ),
    *(SUBSCRIBE, PROMPT, ANSWER, CONFIGURATION, TASK, LEVEL),
)
COUNT = """
(() => {
  const TEXT = 'textarea, [contenteditable=true], .ace_editor, '
    + 'input:not([readonly]):not([type=checkbox]):not([type=radio]):not([type=button]):not([type=submit])';
  const listen = (kind, act) => addEventListener(kind, act, { capture: true });
  listen('pointerdown', (event) => {
    if (event.isTrusted && !event.target.closest(TEXT)) counted('click', '');
  });
  listen('keydown', (event) => {
    if (event.isTrusted && event.key === 'Enter') counted('click', '');
  });
  listen('change', (event) => {
    if (event.target.matches('select')) counted('click', '');
  });
  listen('input', (event) => {
    if (event.target.matches(TEXT)) counted('field', event.target.name || event.target.id || event.target.className);
  });
})();
"""


@dataclass
class Effort:
    clicks: int = 0
    fields: set[str] = field(default_factory=set)


class Person:
    """In front of one of the two products. What is done outside of `doing` only leads to the starting point."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.context = browser.new_context(
            base_url=url, viewport={"width": 1440, "height": 900}, accept_downloads=True, reduced_motion="reduce"
        )
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.context.expose_binding("counted", self._counted)
        self.context.add_init_script(COUNT)
        self.efforts: dict[str, Effort] = {}
        self._effort: Effort | None = None
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(20_000)

    def _counted(self, _source: Any, kind: str, name: str) -> None:
        if self._effort is None:
            return
        if kind == "click":
            self._effort.clicks += 1
        else:
            self._effort.fields.add(name)

    @contextmanager
    def doing(self, task: str) -> Iterator[None]:
        self._effort = self.efforts[task] = Effort()
        yield
        self.page.wait_for_timeout(200)  # what the last press reported
        self._effort = None

    def copied(self) -> str:
        return str(self.page.evaluate("navigator.clipboard.readText()"))

    def press(self, role: Any, name: str, *, exact: bool = True, within: Locator | None = None) -> None:
        (within or self.page.locator("body")).get_by_role(role, name=name, exact=exact).first.click()


def run_mcpadmin(person: Person) -> None:
    """In the order of TASKS. The person is signed in."""
    page, command = person.page, " ".join([(words := peer_command("everything"))[0], *words[1]])
    results = page.locator("#results")

    page.goto("/servers/")
    with person.doing(CONNECT):
        page.locator("main").get_by_role("link", name="Add server").first.click()
        page.locator("#source").fill(command)
        expect(page.get_by_text("Format: command line")).to_be_visible()
        person.press("button", "Register server")
        expect(page.locator(".title .tag", has_text="Ready")).to_be_visible(timeout=60_000)
        expect(page.locator("#tool-list").get_by_text("get-sum", exact=True)).to_be_visible()
    tools = page.url

    def sum_of(first: str, second: str, total: str) -> None:
        expect(results.get_by_text(f"The sum of {first} and {second} is {total}.").first).to_be_visible()

    with person.doing(FIRST):
        page.locator("#tool-list").get_by_text("get-sum", exact=True).click()
        page.locator("[name='arg:/a']").fill("2")
        page.locator("[name='arg:/b']").fill("3")
        page.locator("[name='arg:/b']").press("Enter")
        sum_of("2", "3", "5")
    with person.doing(SECOND):
        page.locator("[name='arg:/b']").fill("4")
        page.locator("[name='arg:/b']").press("Enter")
        sum_of("2", "4", "6")
    with person.doing(AGAIN):
        results.get_by_role("button", name="Run again").first.click()
        expect(results.get_by_text("The sum of 2 and 4 is 6.").filter(visible=True)).to_have_count(2)
    with person.doing(EDIT):
        results.locator(".call-slot").last.get_by_role("link", name="Edit and run").click()
        expect(page.locator("[name='arg:/b']")).to_have_value("3")
        page.locator("[name='arg:/b']").fill("10")
        page.locator("[name='arg:/b']").press("Enter")
        sum_of("2", "10", "12")
    with person.doing(MESSAGES):
        results.get_by_role("link", name="Messages of call").nth(1).click()  # those of the newest may not be stored yet
        expect(page.get_by_role("region", name="Response, message")).to_be_visible()
        person.press("button", "Copy as JSON")
        page.wait_for_timeout(300)
    assert '"tools/call"' in person.copied()

    page.goto(tools)
    with person.doing(READ):
        page.get_by_role("link", name="Resources").first.click()
        page.locator("#resource-list").get_by_text("architecture.md", exact=True).first.click()
        expect(page.locator("#resource-content")).to_contain_text("This documentation summarizes")
    resource = page.url

    def call(tool: str) -> None:
        page.goto(f"{tools}?tool={tool}")
        person.press("button", "Run tool", exact=False)
        expect(results.get_by_text("Succeeded").first).to_be_visible()

    call("toggle-subscriber-updates")
    page.goto(resource)
    with person.doing(SUBSCRIBE):
        person.press("button", "Subscribe")
        expect(page.locator("#resource-content")).to_contain_text("by the subscription", timeout=60_000)
        first = page.locator("#kept-h time").get_attribute("datetime")
        expect(page.locator("#kept-h time")).not_to_have_attribute("datetime", str(first), timeout=60_000)
    page.goto(tools)
    with person.doing(PROMPT):
        page.get_by_role("link", name="Prompts").first.click()
        page.get_by_role("link", name="args-prompt").first.click()
        page.get_by_role("textbox", name="city").fill("Oslo")
        page.get_by_role("textbox", name="city").press("Enter")
        expect(results).to_contain_text("What's weather in Oslo?")

    page.goto(tools)
    with person.doing(ANSWER):
        page.locator("#tool-list").get_by_text("trigger-elicitation-request", exact=True).click()
        person.press("button", "Run tool", exact=False)
        page.locator("#results #answer-form [name='arg:/name']").fill("Ada Lovelace")
        page.locator("#results #answer-form").get_by_role("button", name="Send").click()
        expect(results.get_by_text("User provided the requested information").first).to_be_visible()
    page.goto(tools)
    with person.doing(CONFIGURATION):
        person.press("button", "Copy configuration")
        page.wait_for_timeout(500)
    assert '"mcpServers"' in person.copied()

    with person.doing(TASK):
        page.locator("#tool-list").get_by_text("simulate-research-query", exact=True).click()
        page.locator("[name='arg:/topic']").fill("tasks")
        page.locator("[name='arg:/topic']").press("Enter")
        expect(results.get_by_text("Runs as a task.").first).to_be_visible()
        expect(results.get_by_text("Synthesizing findings").first).to_be_visible()
    call("toggle-simulated-logging")
    with person.doing(LEVEL):
        page.get_by_role("link", name="Logs").first.click()
        level = page.get_by_label("Log level for")
        level.click()
        level.select_option("debug")
        person.press("button", "Set level")
        expect(level).to_have_value("debug")
        expect(page.locator("#console").get_by_text("evel message").first).to_be_visible(timeout=60_000)


def run_inspector(person: Person) -> None:
    """In the order of TASKS, on the page that its web UI opens with."""
    page, (program, arguments) = person.page, peer_command("everything")

    def tab(name: str) -> None:
        page.locator("label, .mantine-SegmentedControl-label").filter(has_text=name).get_by_text(
            name, exact=True
        ).first.click()

    def tool(title: str) -> None:
        page.get_by_role("button", name=title).first.click()

    def text(name: str) -> Locator:
        return page.locator("main").get_by_role("textbox", name=name, exact=True)

    with person.doing(CONNECT):
        person.press("button", "Add Servers")
        page.get_by_role("menuitem", name="Add manually").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Server ID").fill("everything")
        dialog.get_by_label("Command").fill(program)
        dialog.get_by_label("Arguments").fill("\n".join(arguments))
        person.press("button", "Add", within=dialog)
        switch = page.get_by_role("switch", name='Connect or disconnect "everything"')
        page.locator("label").filter(has=switch).first.click()
        expect(page.get_by_text("Connected", exact=True)).to_be_visible()
    with person.doing(FIRST):
        tab("Tools")
        tool("Get Sum Tool")
        text("a").fill("2")
        text("b").fill("3")
        person.press("button", "Execute Tool")
        expect(page.get_by_text("The sum of 2 and 3 is 5.")).to_be_visible()
    with person.doing(SECOND):
        person.press("button", "Close results")
        text("b").fill("4")
        person.press("button", "Execute Tool")
        expect(page.get_by_text("The sum of 2 and 4 is 6.")).to_be_visible()
    with person.doing(AGAIN):
        person.press("button", "Close results")
        person.press("button", "Execute Tool")
        expect(page.get_by_text("The sum of 2 and 4 is 6.")).to_be_visible()
    tab("Logs")  # what the column shows after connecting
    with person.doing(EDIT):
        tab("Protocol")
        page.get_by_role("button", name="Edit and replay").nth(2).click()
        dialog = page.get_by_role("dialog")
        dialog.locator(".ace_content").click()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text('{"name": "get-sum", "arguments": {"a": 2, "b": 10}}')
        person.press("button", "Send", within=dialog)
        expect(dialog).to_be_hidden()
        expect(page.locator("main").get_by_text("get-sum", exact=True)).to_have_count(5)  # the list of tools has one
    tab("Logs")
    with person.doing(MESSAGES):
        tab("Protocol")
        person.press("button", "Expand")
        page.get_by_text("Response:").locator("xpath=following::button[@aria-label='Copy']").first.click()
        page.wait_for_timeout(300)
    assert '"jsonrpc"' in person.copied()
    tab("Logs")
    with person.doing(READ):
        tab("Resources")
        page.get_by_role("button", name="architecture.md").click()
        expect(page.get_by_text("This documentation summarizes").first).to_be_visible()

    def call(title: str) -> None:
        tab("Tools")
        tool(title)
        person.press("button", "Execute Tool")
        expect(page.get_by_role("heading", name="Results")).to_be_visible()

    call("Toggle Subscriber Updates")
    tab("Resources")
    page.get_by_role("button", name="architecture.md").first.click()
    with person.doing(SUBSCRIBE):
        person.press("button", "Subscribe")
        expect(page.get_by_text("Last updated").first).to_be_visible(timeout=60_000)
    tab("Tools")
    with person.doing(PROMPT):
        tab("Prompts")
        page.get_by_role("button", name="Arguments Prompt").click()
        text("city").fill("Oslo")
        person.press("button", "Get Prompt")
        expect(page.get_by_text("What's weather in Oslo?").first).to_be_visible()
    tab("Tools")
    with person.doing(ANSWER):
        tool("Trigger Elicitation Request Tool")
        person.press("button", "Execute Tool")
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("textbox", name="String", exact=True).fill("Ada Lovelace")
        person.press("button", "Submit", within=dialog)
        expect(page.get_by_text("User provided the requested information").first).to_be_visible()
    with person.doing(CONFIGURATION):
        tab("Servers")
        with page.expect_download() as file:
            page.locator("main").get_by_role("button", name="Export").first.click()
    document = json.loads(Path(file.value.path()).read_text())
    assert {"everything", "everything-server-default"} <= set(document["mcpServers"])  # all servers
    tab("Tools")
    with person.doing(TASK):
        tool("Simulate Research Query")
        text("topic").fill("tasks")
        person.press("button", "Execute Tool")
        expect(page.get_by_text("Synthesizing findings").first).to_be_visible()
    call("Toggle Simulated Logging")
    with person.doing(LEVEL):
        person.press("button", "Close monitoring sidebar")
        tab("Logs")
        text("Set Active Level").click()
        page.get_by_role("option", name="debug").click()
        person.press("button", "Set")
        expect(page.get_by_text("evel message").first).to_be_visible(timeout=60_000)


@contextmanager
def started_inspector() -> Iterator[str]:
    """The URL of its web UI with a token. It runs with a private home directory and opens no browser."""
    home, port = Path(tempfile.mkdtemp(prefix="inspector-home-")), free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CLIENT_PORT": str(port),
        "MCP_SANDBOX_PORT": str(free_port()),
        "MCP_AUTO_OPEN_ENABLED": "false",
        "MCP_INSPECTOR_API_TOKEN": "beside",
        "MCP_INSPECTOR_SECRET_STORE": "memory",
    }
    process = subprocess.Popen(
        [*inspector(), "--web"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                urllib.request.urlopen(url, timeout=2).close()
                break
            except (URLError, OSError):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("Inspector did not start") from None
                time.sleep(0.2)  # another process listens, so poll
        yield f"{url}/?MCP_INSPECTOR_API_TOKEN=beside"
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(home, ignore_errors=True)


def table(ours: dict[str, Effort], theirs: dict[str, Effort]) -> list[str]:
    """Of Markdown, for the documentation."""
    rows = (f"| {task} | {_words(ours[task])} | {_words(theirs[task])} |" for task in TASKS)
    return ["| task | mcpadmin | Inspector |", "|---|---|---|", *rows]


def _words(effort: Effort) -> str:
    clicks = f"{effort.clicks} click{'s' if effort.clicks != 1 else ''}"
    fields = len(effort.fields)
    return f"{clicks}, {fields} field{'s' if fields != 1 else ''}" if fields else clicks
