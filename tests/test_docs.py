"""The documents tell the truth about what can be checked: settings, commands, files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = (ROOT / "mcpadmin" / "settings.py").read_text()
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
# Read by the command `up` itself, for the default of an option.
READ_ELSEWHERE = {"MCPADMIN_HOST"}
PAGES = ["architecture", "articles-and-specification", "configuration", "error-codes", "protocol"]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{page}.md" for page in PAGES)]
DOCUMENTS += ["sessions/protocol/README.md"]


def settings_read() -> set[str]:
    return set(re.findall(r"env\.[a-z_]+\(\s*\"([A-Z_]+)\"", SETTINGS))


def settings_documented() -> set[str]:
    return set(re.findall(r"^\| `([A-Z_]+)` \|", CONFIGURATION, re.MULTILINE))


def test_every_setting_is_documented_and_every_documented_setting_is_read() -> None:
    assert len(settings_read()) > 15
    assert settings_documented() == settings_read() | READ_ELSEWHERE


def test_what_is_said_to_be_read_elsewhere_is_read_there() -> None:
    source = (ROOT / "mcpadmin" / "management" / "commands" / "up.py").read_text()
    assert [name for name in READ_ELSEWHERE if name not in source] == []


def test_every_option_of_up_is_documented() -> None:
    source = (ROOT / "mcpadmin" / "management" / "commands" / "up.py").read_text()
    options = re.findall(r"add_argument\(\s*\"--([a-z-]+)\"", source)
    spelled = {"browser": "no-browser"}  # its useful half
    assert options
    assert [name for name in options if f"`--{spelled.get(name, name)}" not in CONFIGURATION] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_to_a_file_leads_somewhere(name: str) -> None:
    document = ROOT / name
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text())
    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_path_in_code_quotes_exists(name: str) -> None:
    """Only whole paths below a folder of ours; patterns with < > * … are prose."""
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
