"""The generated parts of the documents match the code."""

import ast
import re

import pytest

from sessions.mcp.core import state, tasks, versions
from tests.tools import generate_docs

PAGES = {name: (generate_docs.ROOT / name).read_text() for name in generate_docs.PAGES}


@pytest.mark.parametrize("name", PAGES)
def test_the_generated_parts_of_a_page_are_those_of_the_code(name: str) -> None:
    assert generate_docs.written(PAGES[name]) == PAGES[name], "run: make docs"


def test_every_part_that_can_be_generated_is_on_exactly_one_page() -> None:
    found = [part for text in PAGES.values() for part in re.findall(r"<!-- generated: (.+?) -->", text)]
    assert sorted(found) == sorted(generate_docs.PARTS)


def test_every_part_ends_where_it_says() -> None:
    for text in PAGES.values():
        begun, ended = re.findall(r"<!-- generated: (.+?) -->", text), re.findall(r"<!-- end of (.+?) -->", text)
        assert begun == ended


def test_a_part_that_was_changed_by_hand_is_written_again() -> None:
    page = PAGES["docs/protocol.md"]
    changed = page.replace("| era |", "| epoch |")
    assert changed != page
    assert generate_docs.written(changed) == page


@pytest.mark.parametrize("era", list(versions.Era))
def test_the_diagram_has_every_transition_of_the_table_and_no_other(era: versions.Era) -> None:
    arrows = re.findall(r"^    (\w+) --> (\w+): (.+)$", generate_docs.diagram(era), re.MULTILINE)
    drawn = {((before, trigger), after) for before, after, words in arrows for trigger in words.split(", ")}
    assert drawn == {((str(a), str(t)), str(b)) for (a, t), b in state.TABLES[era].items()}


def test_every_limit_and_every_state_of_a_task_is_on_the_page() -> None:
    page = PAGES["docs/protocol.md"]
    assert [one for one in generate_docs.limits.Limits.__slots__ if f"`{one}`" not in page] == []
    assert [one for one in tasks.Status if f"| `{one}` |" not in page] == []


def test_every_shown_limit_has_words() -> None:
    rows = [line.split(" | ") for line in generate_docs.bounds().splitlines()[2:]]
    assert all(len(row) == 3 and len(row[2]) > 10 for row in rows)


def test_every_place_that_answers_where_something_is_exists_and_says_what_it_is_for() -> None:
    answers = PAGES["docs/architecture.md"].split("### Where is")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [^-].+ \|$", answers, re.MULTILINE)[1:]
    places = re.findall(r"^\| [^|]+ \| `([\w/]+)(/|\.py)(?::(\w+))?` \|$", answers, re.MULTILINE)
    assert len(places) == len(rows) > 50
    for path, kind, name in places:
        file = generate_docs.ROOT / (f"{path}/__init__.py" if kind == "/" else f"{path}.py")
        assert generate_docs.about(file)
        top = ast.parse(file.read_text()).body
        assert not name or name in {one for node in top for one in names_of(node)}, f"{name} is not in {path}.py"


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    return [one.id for one in getattr(node, "targets", []) if isinstance(one, ast.Name)]
