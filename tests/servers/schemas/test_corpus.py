"""Every schema of the corpus, real or nasty, becomes a form or says why not, and no value changes on its way through it.

Real schemas are what servers of PyPI and npm answered (corpus/, recorded by record.py); nasty ones are in nasty_schemas.py
and corpus/nasty.json.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from servers.schemas.checker import Checker
from servers.schemas.compile import compile_form
from servers.schemas.nodes import JsonNode, Node
from servers.schemas.parse import parse_form
from servers.schemas.render import render_form
from tests.servers.schemas.browser_form import parsed_html, posted
from tests.servers.schemas.cases import FOLDER, nasty_tools
from tests.servers.schemas.nasty_schemas import ALL, Nasty, of
from tests.servers.schemas.sampling import samples

LEAST = 160
REAL = [*sorted(FOLDER.glob("recorded/*.json")), FOLDER / "everything.json", FOLDER / "filesystem.json"]


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    """With a generous budget, so that a busy machine does not turn verdicts into time-outs."""
    made = Checker(seconds=20)
    yield made
    made.close()


def tools(file: Any) -> list[tuple[str, Any]]:
    return [(f"{file.stem}:{tool['name']}", tool["inputSchema"]) for tool in json.loads(file.read_text())["tools"]]


def exact(value: Any) -> str:
    """Distinguishes 1, 1.0 and true. Ignores the order of keys."""
    return json.dumps(value, sort_keys=True)


def shown_as(form: Node) -> str:
    if form.kind == "json":
        return "json"
    return "parts" if any(node.kind == "json" for node in form.walk()) else "form"


def most_json(found: list[str]) -> str:
    return "json" if set(found) == {"json"} else "parts" if set(found) - {"form"} else "form"


def problems(name: str, schema: Any, value: Any) -> Iterator[str]:
    """What is wrong with one value of one schema."""
    form = compile_form(schema, value)
    html = render_form(form)
    text = "".join(parsed_html(html).text)
    for node in form.walk():
        if isinstance(node, JsonNode) and not (node.reason and node.reason in text):
            yield f"{name}: {node.path or 'all of it'} is JSON and no reason is shown"
    read = parse_form(schema, posted(html))
    if read.errors or exact(read.value) != exact(value):
        yield f"{name}: {exact(value)[:200]} came back as {read.errors or exact(read.value)[:200]}"


@pytest.mark.parametrize("file", REAL, ids=lambda file: file.stem)
def test_each_tool_of_a_real_server_has_a_form_and_values_come_back_exactly(file: Any, checker: Checker) -> None:
    wrong = []
    for name, schema in tools(file):
        values = samples(checker, schema)
        wrong += [] if values else [f"{name}: no valid value was found"]
        for value in values:
            wrong += problems(name, schema, value)
        new = parse_form(schema, posted(render_form(compile_form(schema)))).draft
        if isinstance(new, dict) and not set(new) <= set(schema.get("required", [])):
            wrong.append(f"{name}: a new form sends {set(new) - set(schema.get('required', []))}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("nasty", ALL, ids=str)
def test_a_nasty_schema_is_shown_as_said_and_values_come_back_exactly(nasty: Nasty, checker: Checker) -> None:
    verdicts = {checker.check(nasty.schema, value) for value in nasty.values} if not nasty.unable else set()
    assert {verdict.state for verdict in verdicts} <= {"valid"}, verdicts
    if nasty.unable:
        verdict = checker.check(nasty.schema, nasty.values[0])
        assert (verdict.state, bool(verdict.reason)) == ("unable", True)
    assert [problem for value in nasty.values for problem in problems(nasty.name, nasty.schema, value)] == []
    assert most_json([shown_as(compile_form(nasty.schema, value)) for value in nasty.values]) == nasty.shown
    parse_form(nasty.schema, posted(render_form(compile_form(nasty.schema))))


def test_the_corpus_has_at_least_160_schemas() -> None:
    real = [schema for file in REAL for _, schema in tools(file)]
    nasty = [*(n.schema for n in ALL), *(case.schema for case in nasty_tools())]
    assert len({exact(schema) for schema in [*real, *nasty]}) >= LEAST


@pytest.mark.long
def test_how_the_corpus_is_shown_is_printed(checker: Checker, capsys: pytest.CaptureFixture[str]) -> None:
    real = [schema for file in REAL for _, schema in tools(file)]
    nasty = [(n.schema, list(n.values)) for n in ALL] + [
        (case.schema, [case.minimal, case.full]) for case in nasty_tools()
    ]
    shown = Counter(
        most_json([shown_as(compile_form(schema, value)) for value in values])
        for schema, values in [*((schema, samples(checker, schema)) for schema in real), *nasty]
    )
    distinct = len({exact(schema) for schema in [*real, *(schema for schema, _ in nasty)]})
    with capsys.disabled():
        print(
            f"\nschemas: {len(real)} real of {len(REAL)} servers, {len(nasty)} nasty, {distinct} distinct; "
            f"{shown['form']} are forms, {shown['parts']} forms with parts in JSON, {shown['json']} JSON, each with its reason"
        )
    assert sum(shown.values()) == len(real) + len(nasty)


def test_too_many_or_no_options_are_the_reason_for_json() -> None:
    form = compile_form(of({"many": {"enum": list(range(1_001))}, "none": {"enum": []}}))
    reasons = {node.key: getattr(node, "reason", "") for node in form.nested()}
    assert reasons == {
        "many": "There are more than 1,000 options to choose from here.",
        "none": "The schema allows no value here: its list of options is empty.",
    }


def suggested(html: str, name: str) -> list[str]:
    """The values of the list that the field of this name refers to."""
    tags = parsed_html(html).tags
    field = next(given for tag, given in tags if tag == "input" and given.get("name") == name)
    begin = next(at for at, (tag, given) in enumerate(tags) if tag == "datalist" and given["id"] == field["list"])
    rest = itertools.takewhile(lambda one: one[0] == "option", tags[begin + 1 :])
    return [given["value"] for _, given in rest]


def test_a_long_list_of_texts_is_typed_with_all_its_values_suggested_and_says_so(checker: Checker) -> None:
    values = [f"zone-{number}" for number in range(1_200)]
    zone = {"type": "string", "enum": values}
    schema = of({"zone": zone, "port": {"type": "integer", "enum": list(range(1_200))}})
    html = render_form(compile_form(schema))
    assert "One of 1,200 values: type a part of it to find it." in html
    offered = {name: suggested(html, name) for name in ("arg:/zone", "arg:/port")}
    assert offered == {"arg:/zone": values, "arg:/port": [str(number) for number in range(1_200)]}
    assert checker.check(schema, {"zone": "zone-1199", "port": 7}).state == "valid"
    assert "Must be one of" in str(checker.check(schema, {"zone": "zone-1200"}).errors)


def test_the_items_of_a_list_share_one_list_of_suggestions() -> None:
    zone = {"type": "string", "enum": [f"zone-{number}" for number in range(1_200)]}
    html = render_form(compile_form(of({"zones": {"type": "array", "items": zone}}), {"zones": ["zone-1", "zone-2"]}))
    assert html.count("<datalist") == 1
    assert html.count(" list=") == 2


def test_options_that_a_page_cannot_hold_are_not_suggested_but_counted() -> None:
    html = render_form(compile_form(of({"zone": {"type": "string", "enum": [f"{n}" for n in range(50_000)]}})))
    assert "One of 50,000 values, too many to list here." in html
    assert "<datalist" not in html


def test_broken_json_text_does_not_hide_why_the_part_is_json() -> None:
    schema = of({"x": {}})
    typed = {**posted(render_form(compile_form(schema, {"x": 1}))), "arg.json:/x": ["{"]}
    again = render_form(compile_form(schema, parse_form(schema, typed).draft))
    assert "Any JSON value." in again


def test_half_a_character_is_named_as_the_reason_that_nothing_can_be_checked(checker: Checker) -> None:
    for schema, value in ((of({"\ud800": {}}), {}), ({"additionalProperties": {"pattern": ""}}, {"a": "\udfff"})):
        verdict = checker.check(schema, value)
        assert (verdict.state, "an unpaired surrogate" in verdict.reason) == ("unable", True), verdict
