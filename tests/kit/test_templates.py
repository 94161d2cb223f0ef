"""The sources contain nothing that the content security policy or the kit forbids."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.template.loader import get_template

from servers.kit.icons import icon_bodies

ROOT = Path(settings.BASE_DIR)
TEMPLATES = {path.relative_to(ROOT): path.read_text() for path in sorted((ROOT / "templates").rglob("*.html"))}
MINE = [
    ROOT / "templates" / name
    for name in (
        "shell",
        "kit",
        "account",
        "allauth",
        "base.html",
        "400.html",
        "403.html",
        "403_csrf.html",
        "404.html",
        "500.html",
    )
]
SCRIPTS = sorted((ROOT / "static" / "js").glob("*.js"))
STYLES = sorted((ROOT / "static" / "css").glob("*.css"))
FORBIDDEN = {
    "an inline script": r"<script(?![^>]*\bsrc=)(?![^>]*application/json)",
    "an inline style sheet": r"<style\b",
    "a style attribute": r"\sstyle\s*=",
    "an event attribute": r"\son[a-z]+\s*=",
    "hx-on": r"hx-on[:\s=]",
    "a js: value": r"=[\"']js:|javascript:",
    "a trigger filter": r"hx-trigger=[\"'][^\"']*\[",
    "a part that replaces itself, and with it the focus, or never asks again": r"hx-trigger=\"load delay",
    "markup of `visible` in an attribute": r"=\"[^\"<>]*\|visible[\s}|]",
    "unescaped output": r"\|safe\b|\{% autoescape off",
    "another host": r"(?:src|href)=[\"'](?:https?:)?//",
    "a comment of several lines, which Django shows": r"\{#(?:(?!#\}).)*\n",
}


@pytest.mark.parametrize("what", sorted(FORBIDDEN))
def test_no_template_contains(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [f"{path}: {match[0]}" for path, text in TEMPLATES.items() for match in pattern.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    ("what", "faulty"),
    [
        ("an inline script", "<script>alert(1)</script>"),
        ("a style attribute", '<p style="color:red">'),
        ("an event attribute", '<a onclick="x()">'),
        ("a trigger filter", '<a hx-trigger="click[ctrlKey]">'),
        (
            "a part that replaces itself, and with it the focus, or never asks again",
            '<p hx-get="/" hx-trigger="load delay:1s">',
        ),
        ("markup of `visible` in an attribute", '<p title="{{ name|visible }}">'),
        ("another host", '<img src="//example.org/x.png">'),
        ("a comment of several lines, which Django shows", "{# what it needs,\n   and why #}"),
    ],
)
def test_the_rule_sees_a_planted_fault(what: str, faulty: str) -> None:
    assert re.search(FORBIDDEN[what], faulty)


def test_counts_are_written_with_separators() -> None:
    """What has a plural is a count, and so is what stands alone in the figures of a table or a tile."""
    found = [f"{path}: {{{{ {name} }}}}" for path, text in TEMPLATES.items() for name in bare_counts(text)]
    assert found == []


_COUNTED = re.compile(r"\{\{ ([\w.]+(?:\|length)?)\|pluralize")
_FIGURE = re.compile(
    r"class=\"[^\"]*\bnum\b[^\"]*\"[^<>]*>(?:<a [^<>]*>)?"
    r"\{\{ ([\w.]*(?:calls|errors|count|counts|total|events|tools|tokens|members|held|in_flight|\|length)) \}\}"
)


def bare_counts(text: str) -> set[str]:
    counted = {name for name in _COUNTED.findall(text) if re.search(rf"(?<!=\"){{{{ {re.escape(name)} }}}}", text)}
    return {name for name in counted | set(_FIGURE.findall(text)) if not name.endswith("_words")}


def test_the_rule_sees_a_count_without_separators() -> None:
    assert bare_counts('<b>{{ rows }} row{{ rows|pluralize }}</b> <td class="r num">{{ total.calls }}</td>') == {
        "rows",
        "total.calls",
    }
    assert bare_counts("<b>{{ rows|number }} row{{ rows|pluralize }}</b>") == set()


def test_every_icon_named_in_a_template_is_vendored() -> None:
    named = re.compile(r"{% icon \"([^\"]+)\"|icon=\"([a-z0-9-]+)\"|nav_item \"[^\"]+\" \"[^\"]+\" \"([^\"]+)\"")
    used = {name for text in TEMPLATES.values() for match in named.findall(text) for name in match if name}
    assert used - icon_bodies().keys() == set()


_LINK = re.compile(r"<a\b[^<>]*?href=\"{% url \"([\w:]+)\"[^%]*%}[^<>]*>.*?</a>", re.DOTALL)
_ASKS = re.compile(
    r"\b(?:archive|block|clone|delete|disable|end_identity|erase|give_up|hand_over|legacy|remove|revoke|rotate)"
)


def test_a_link_to_a_page_that_asks_ends_in_an_ellipsis() -> None:
    links = [(path, found) for path, text in TEMPLATES.items() for found in _LINK.finditer(text)]
    asking = [(path, found[0]) for path, found in links if _ASKS.search(found[1])]
    assert len(asking) > 30, "the pattern finds them"
    assert [(str(path), link) for path, link in asking if "…" not in link] == []


def test_every_page_that_asks_before_something_is_done_has_the_same_frame() -> None:
    including = re.compile(r"include \"(?:kit/_confirm_(?:form|acts)|calls/_repeat_form)\.html\"")
    asking = {path for path, text in TEMPLATES.items() if including.search(text) and not path.name.startswith("_")}
    framed = {path for path in asking if re.match(r"{% extends \"(?:shell|oauth)/_?question", TEMPLATES[path])}
    assert len(framed) > 20
    assert asking - framed == {Path("templates/shell/question.html")}


def test_the_templates_of_the_kit_pass_djlint() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "djlint",
            *map(str, MINE),
            "--lint",
            "--quiet",
            "--configuration",
            str(ROOT / "pyproject.toml"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_scripts_never_turn_text_into_code_or_markup() -> None:
    pattern = re.compile(
        r"\beval\(|new Function|(?:inner|outer)HTML\s*\+?=(?!=)|insertAdjacentHTML|document\.write|setTimeout\(['\"]"
    )
    found = [
        f"{path.name}: {line.strip()}"
        for path in SCRIPTS
        for line in path.read_text().splitlines()
        if pattern.search(line)
    ]
    assert found == []


def test_style_sheets_load_nothing_from_elsewhere_and_scripts_import_only_neighbours() -> None:
    for path in STYLES:
        assert re.findall(r"url\((?![\"']?(?:\.\./vendor/|data:))", path.read_text()) == []
    for path in SCRIPTS:
        for target in re.findall(r"from '([^']+)'", path.read_text()):
            assert (path.parent / target).is_file(), f"{path.name} imports {target}"


@pytest.mark.parametrize("name", ["400.html", "403.html", "403_csrf.html", "404.html", "500.html"])
def test_an_error_page_renders_without_a_request_and_says_what_to_do(name: str, kit_urls: None) -> None:
    page = get_template(name).render()
    assert "<h1" in page
    assert 'href="/"' in page
