"""What a server says becomes lines of its log without secrets, in whatever form it says it."""

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from servers.privacy.detection import SHAPES
from servers.secret import MASK, Secret
from sessions.enums import LogSource
from sessions.host.answer_redaction import WORDS_CHARS, Redactor
from sessions.host.logs.session_log import ServerLogLine
from sessions.host.logs.spoken import ServerMessages
from sessions.host.opening import Diagnosis
from sessions.mcp.core.events import DiagnosticLine, LogMessage, ProtocolViolation

TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture
def lines() -> list[ServerLogLine]:
    return []


@pytest.fixture
def spoken(lines: list[ServerLogLine]) -> ServerMessages:
    redactor = Redactor([Secret("hunter2-hunter2")])
    log: Any = SimpleNamespace(
        add=lines.append, host=lambda text, level: lines.append(ServerLogLine(LogSource.HOST, level, text))
    )
    return ServerMessages(log, redactor, Diagnosis(redactor))


def test_a_secret_in_the_json_of_a_log_message_is_masked_and_the_json_stays_json(
    spoken: ServerMessages, lines: list[ServerLogLine]
) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC"  # its end was cut off
    data = {
        "note": f"tokens:\n{TOKEN}",
        "key": key,
        "quoted": f'{{"a": "\n{TOKEN}"}}',
        TOKEN: "hunter2-hunter2",
        "z": "a-b",
    }
    spoken.log_message(LogMessage("info", f"app {TOKEN}", data))
    (line,) = lines
    assert json.loads(line.text) == {
        "note": f"tokens:\n{MASK}",
        "key": f"-----BEGIN PRIVATE KEY-----{MASK}",
        "quoted": f'{{"a": "\n{MASK}"}}',
        MASK: MASK,
        "z": "a-b",
    }
    assert line.logger == f"app {MASK}"


async def test_a_secret_is_masked_in_text_in_stderr_and_in_our_words_about_the_server(
    spoken: ServerMessages, lines: list[ServerLogLine]
) -> None:
    said = f"hunter2-hunter2 and {TOKEN}"
    spoken.log_message(LogMessage("info", None, said))
    spoken.diagnostic(DiagnosticLine("stderr", said))
    spoken.violation(ProtocolViolation(said))
    spoken.close()
    assert [line.text.removeprefix("The server broke the protocol: ") for line in lines] == [f"{MASK} and {MASK}"] * 3


def test_a_private_key_on_stderr_is_masked_line_by_line_and_no_line_after_it(
    spoken: ServerMessages, lines: list[ServerLogLine]
) -> None:
    body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
    key = ["-----BEGIN RSA PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED", "", body, f"12:00 {body}", "c2hvcnQ="]
    for text in ("Started", *key, "-----END RSA PRIVATE KEY-----", "Ready", body):
        spoken.diagnostic(DiagnosticLine("stderr", text))
        spoken.diagnostic(DiagnosticLine("stdout", "Word"))
    shown = [line.text for line in lines if line.logger == "stderr"]
    assert shown == ["Started", *key[:3], MASK, f"12:00 {MASK}", MASK, "-----END RSA PRIVATE KEY-----", "Ready", body]
    assert {line.text for line in lines if line.logger == "stdout"} == {"Word"}


def test_a_private_key_that_stops_in_the_middle_takes_no_more_than_one_word_with_it(
    spoken: ServerMessages, lines: list[ServerLogLine]
) -> None:
    for text in ("-----BEGIN PRIVATE KEY-----", "A" * 64, "Listening on port 80", "Ready"):
        spoken.diagnostic(DiagnosticLine("stderr", text))
    assert [line.text for line in lines][1:] == [MASK, "Listening on port 80", "Ready"]


LITERALS = " ".join(literal for shape in SHAPES for literal in (*shape.literals, shape.also))


@pytest.mark.parametrize("is_json", [False, True], ids=["text", "JSON"])
def test_megabytes_of_a_log_message_take_moments(
    spoken: ServerMessages, lines: list[ServerLogLine], is_json: bool
) -> None:
    text = LITERALS + "a.\\a" * 1_000_000
    began = time.process_time()
    spoken.log_message(LogMessage("info", text, {"note": text} if is_json else text))
    assert time.process_time() - began < 0.5
    (line,) = lines
    assert len(line.text) == len(line.logger) == WORDS_CHARS


@pytest.mark.parametrize("secret", [TOKEN, "hunter2-hunter2"], ids=["detected", "of the server"])
@pytest.mark.parametrize("is_json", [False, True], ids=["text", "JSON"])
def test_nothing_of_a_secret_stays_where_a_long_message_is_cut(
    spoken: ServerMessages, lines: list[ServerLogLine], secret: str, is_json: bool
) -> None:
    key = f"-----BEGIN PRIVATE KEY-----{'A' * 15_000}-----END PRIVATE KEY-----"  # the mask is much shorter
    for length in range(0, 800, 7):
        text = key + " " * (700 + length) + secret + " " * 10_000
        spoken.log_message(LogMessage("info", None, [text] if is_json else text))
    assert not {piece for line in lines for piece in (secret[:8], secret[-8:]) if piece in line.text}
