"""The check `words` refuses every phrase that pages once had, suggests a better one, and finds none on pages now."""

from pathlib import Path

import pytest

from tests.tools.page_words import files, main, refused, sentences

LEFT = [
    "First reading", "No changes · read 5 min ago", "<b>Cached</b>", "Not succeeded", "One argument needs another look.",
    "Not allowed here.", 'Tick "send empty text" if it shall be empty.', "Waiting before the next try", "Try 5 in 0:01",
    "Breaker open: it failed again and again", "What is known", "May be sent until", "Placed", "Its call",
    "Debug and worse", "All but completions", "What depends on it", "Keep it", "Questions of the server",
    "What it wishes", "What everything asks", "What everything asked", "everything asks for a model's answer",
    "everything asks you to open an address", "A form to fill in, a page to visit.",
    "Whoever may answer can answer; the first answer counts.", "the server is told that nobody decided.",
    "<h2>Over</h2>", "Taken by", "Called by", '<th scope="col">Asked</th>', "Nobody told of changes between X and Y",
    "The server acknowledged the subscription and tells of changes.", "mcpadmin then listens day and night",
    "Tokens rest here sealed", "Sealed at once, so it is sealed", "No secret leaves the vault",
    "You need an own credential here", "You have no own identity here", "Own identity begun", "Own identity given up",
    "What the import would do", "What became of the import", "Here already, differs", "A whole path.",
    "Empty: a directory of its own.", "In addresses; made from the name when empty.", "or closed again when idle.",
    "<th>In words</th>", "What repeats is one line with a count.", "everything is saved", "Not verified in this sign-in",
    "The chain holds", "The hash matches and follows event 817", "You may not do this", "The form is too old",
    "mcpadmin made a mistake", "Nothing of it can be shown here", "The text goes on; the download has all of it.",
    "The answer did not arrive (time-out).", "Connect time-out", "With what only mcpadmin knows",
    "Names, one a line.", "Empty: never ask.", "<dt>Who</dt>", "<dt>Why it asks</dt>", "never repeated by mcpadmin", "these went last", "of late",
    "a phrase is easier to keep than a puzzle", "Question taken", "Credential blanked: the server moved",
    "Sign-in to a server begun", "transport, era and revision are found out",
    "Only workers that carry it open this server.", "Held by", "How it was decided",
    "The words above and below are the server's own.", "until somebody resumes it", "It opens by itself.",
    "The server was deleted meanwhile.", "This is no certificate in PEM form.", "There is no such call.",
    "A token that nobody uses.", "Both are read by turns.", "A server of theirs.", "It waits in vain.", "The call shall wait.",
]  # fmt: skip


@pytest.mark.parametrize("phrase", LEFT)
def test_a_phrase_that_reads_as_translated_is_refused(phrase: str) -> None:
    assert list(refused(phrase))


def test_the_name_of_a_class_is_refused_in_a_sentence() -> None:
    assert list(refused("OutcomeWords unknown"))
    assert not list(refused("OutcomeWords"))


def test_plain_sentences_pass() -> None:
    for text in (
        "Failed", "Retrying in 1 s (attempt 5)", "Outcome unknown: check the server before running it again",
        "Everyone who can call this server's tools", "Check the server's own log.", "Overview", "Cancelled by ada",
    ):  # fmt: skip
        assert not list(refused(text)), text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.html", "<p>\n  Not succeeded\n</p>"),
        ("page.js", "/* a note */\nconst WORDS = ['Not succeeded'];"),
        ("page.py", '"""A note."""\nWORDS = f"{1} calls: " "Not succeeded"\n'),
    ],
)
def test_a_file_with_such_a_phrase_fails_with_its_line_and_the_better_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    assert main([str(tmp_path / name)]) == 1
    assert f"{name}:2: “Not succeeded”: write Failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.html", "{# Not succeeded #}"),
        ("page.js", "/* 'Not succeeded' */ // 'Not succeeded'"),
        ("page.py", '"""Not succeeded."""\n# Not succeeded\n'),
    ],
)
def test_what_no_page_shows_may_say_anything(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert main([str(tmp_path / name)]) == 0


def test_every_template_script_and_module_is_read() -> None:
    found = {path.suffix for path in files()}
    assert found == {".html", ".js", ".py"}
    assert any(words for path in files()[:20] for _, words in sentences(path))
