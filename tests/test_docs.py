"""The documents are correct about what can be checked: settings, commands, files."""

import re
from pathlib import Path

import pytest

from servers.credentials.references import resolve
from servers.registration.forms.server import ServerForm

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = (ROOT / "mcpadmin" / "settings.py").read_text()
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
# The command `up` reads these itself: for the default of an option, or to choose what a part gets.
READ_ELSEWHERE = {
    **dict.fromkeys(("MCPADMIN_HOST", "MCPADMIN_WEB_PROCESSES", "MCPADMIN_USER"), "mcpadmin/up/options.py"),
    **dict.fromkeys(("REDIS_URL_WEB", "REDIS_URL_WORKER"), "mcpadmin/up/supervisor.py"),
}
PAGES = [
    "agents",
    "api",
    "architecture",
    "articles-and-specification",
    "command-line",
    "configuration",
    "error-codes",
    "explorer",
    "protocol",
]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{page}.md" for page in PAGES)]
DOCUMENTS += ["sessions/mcp/README.md"]


def settings_read() -> set[str]:
    return set(re.findall(r"env\.[a-z_]+\(\s*\"([A-Z_]+)\"", SETTINGS))


def settings_documented() -> set[str]:
    return set(re.findall(r"^\| `([A-Z_]+)` \|", CONFIGURATION, re.MULTILINE))


def test_every_setting_is_documented_and_every_documented_setting_is_read() -> None:
    assert len(settings_read()) > 15
    assert settings_documented() == settings_read() | READ_ELSEWHERE.keys()


def test_what_is_said_to_be_read_elsewhere_is_read_there() -> None:
    assert [name for name, path in READ_ELSEWHERE.items() if name not in (ROOT / path).read_text()] == []


def test_every_option_of_up_is_documented() -> None:
    source = (ROOT / "mcpadmin" / "up" / "options.py").read_text()
    options = re.findall(r"add_argument\(\s*\"--([a-z-]+)\"", source)
    spelled = {"browser": "no-browser"}  # documented in its useful form
    assert options
    assert [name for name in options if f"`--{spelled.get(name, name)}" not in CONFIGURATION] == []


def test_the_escape_of_a_reference_is_named_wherever_references_are_explained() -> None:
    assert [resolve(text, ()).text for text in ("$${", "$${NAME}")] == ["${", "${NAME}"]
    explained = [
        CONFIGURATION,
        (ROOT / "docs" / "importing.md").read_text(),
        str(ServerForm.base_fields["arguments"].help_text),
    ]
    assert [text[:40] for text in explained if "${NAME}" not in text or "$${" not in text] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_to_a_file_leads_somewhere(name: str) -> None:
    document = ROOT / name
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text())
    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_path_in_code_quotes_exists(name: str) -> None:
    """Checks only whole paths below our folders. Patterns with < > * … are prose."""
    paths = re.findall(
        r"`((?:mcpadmin|servers|sessions|tests|docs|templates|static)/[\w./-]*)`", (ROOT / name).read_text()
    )
    written_when_run = ("tests/screenshots/out/",)
    assert [path for path in paths if not (ROOT / path).exists() and path not in written_when_run] == []


def test_every_make_target_that_a_document_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "".join((ROOT / name).read_text() for name in DOCUMENTS)
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    assert {"run", "test", "check"} <= named <= targets


def test_every_test_that_a_document_names_exists() -> None:
    """A name that ends with … is the beginning of one."""
    files = list((ROOT / "tests").rglob("test_*.py"))
    names = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}
    known = names | {file.name for file in files}
    text = "".join((ROOT / name).read_text() for name in DOCUMENTS)
    named = set(re.findall(r"`(?:[\w/]+/)?(test_\w+(?:…|\.py)?)`", text))
    begun = {one for one in named if one.endswith("…") and any(name.startswith(one[:-1]) for name in names)}
    assert len(named) > 20
    assert named - known - begun == set()
