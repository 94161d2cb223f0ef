import base64
import html
import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, quote_plus

import pytest
import structlog

from mcpadmin import logging as product_logging
from mcpadmin.log_redaction import MASK, is_secret_name, redact
from servers.secret import Secret

CANARY = 'cäN4ry/"quoted"\\back slash&+=%!(*<\''


@pytest.fixture
def canary() -> Secret:
    return Secret(CANARY)


@contextmanager
def captured(settings: object, form: str) -> Iterator[io.StringIO]:
    """The product's logging in one of its formats, written to the test's stream."""
    settings.LOG_FORMAT = form
    root = logging.getLogger()
    before = root.handlers[:], root.level
    product_logging.configure()
    stream = io.StringIO()
    root.handlers[0].setStream(stream)
    yield stream
    root.handlers, root.level = before


@pytest.fixture(params=["json", "plain"])
def written(request: pytest.FixtureRequest, settings: object) -> Iterator[io.StringIO]:
    with captured(settings, request.param) as stream:
        yield stream


def by_number(text: str, characters: str, digits: str = "04x") -> str:
    return text.translate({ord(one): f"\\u{ord(one):{digits}}" for one in characters})


def encodings(value: str) -> dict[str, str]:
    data = value.encode()
    return {
        "raw": value,
        "url": quote(value, safe=""),
        "url, lower-case hex": re.sub("%..", lambda code: code[0].lower(), quote(value, safe="")),
        "form": quote_plus(value),
        "url, as JavaScript": quote(value, safe="!'()*"),
        "form, as JavaScript": quote_plus(value, safe="*"),
        "json": json.dumps(value),
        "json, as PHP": json.dumps(value).replace("/", r"\/"),
        "json, as Go": by_number(json.dumps(value, ensure_ascii=False), "&<>"),
        "json, as Gson": by_number(json.dumps(value, ensure_ascii=False), "&<>='"),
        "json, as Django": by_number(json.dumps(value), "&<>", "04X"),
        "json, as .NET": by_number(json.dumps(value, ensure_ascii=False).replace(r"\"", r"\u0022"), "&<>+'", "04X"),
        "json, as Go, twice": json.dumps(by_number(json.dumps(value, ensure_ascii=False), "&<>")),
        "json, twice": json.dumps(json.dumps(value)),
        "json, not ascii": json.dumps(value, ensure_ascii=False),
        "html": html.escape(value),
        "repr": repr({"k": value}),
        "hex": data.hex(),
        "HEX": data.hex().upper(),
        "base64": base64.b64encode(data).decode(),
        "base64 after 1 byte": base64.b64encode(b"x" + data).decode(),
        "base64 after 2 bytes": base64.b64encode(b"xy" + data + b"tail").decode(),
        "base64url": base64.urlsafe_b64encode(data).decode(),
        "upper case": value.upper(),
    }


def leaks(text: str, value: str) -> list[str]:
    """The encodings of `value` of which `text` still contains eight consecutive characters."""
    found = []
    for name, form in encodings(value).items():
        core = form.strip("\"'{}k: =")[4:-4]
        if any(core[at : at + 8] in text for at in range(len(core) - 7)):
            found.append(name)
    return found


@pytest.mark.parametrize("name", encodings(CANARY))
def test_a_live_secret_is_masked_in_every_encoding(canary: Secret, name: str) -> None:
    text = f"before {encodings(CANARY)[name]} after"
    masked = redact(text)
    assert MASK in masked
    assert leaks(masked, CANARY) == []
    assert masked.startswith("before ")
    assert masked.endswith(" after")


def test_a_secret_that_is_gone_from_memory_is_no_longer_looked_for() -> None:
    secret = Secret("short-lived-value")
    assert redact("short-lived-value") == MASK
    del secret
    assert redact("short-lived-value") == "short-lived-value"


def test_a_secret_that_takes_the_place_of_another_is_masked_from_then_on() -> None:
    first = Secret("first-of-two-values")
    assert redact("is first-of-two-values") == f"is {MASK}"
    del first
    second = Secret("second-of-two-values")
    assert redact("is second-of-two-values") == f"is {MASK}"
    assert second


def test_text_without_secrets_is_left_as_it_is(canary: Secret) -> None:
    text = "tools/call echo finished in 12 ms: 3 tokens, cookie-cutter, secretary"
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer hunter2hunter2",
        'headers={"X-Api-Key": "hunter2hunter2"}',
        "password=hunter2hunter2&user=ada",
        "redis://default:hunter2hunter2@cache.example:6379/0",
        "GET /setup/hunter2hunter2:abc/",
        "GET /link/hunter2hunter2/",
        "sent with bearer hunter2hunter2",
        "client_secret='hunter2hunter2'",
        "Set-Cookie: sessionid=hunter2hunter2; Path=/",
    ],
)
def test_a_value_beside_a_telling_name_is_masked_though_no_one_declared_it(text: str) -> None:
    assert "hunter2" not in redact(text)
    assert MASK in redact(text)


@pytest.mark.parametrize(
    "name", ["authorization", "X-Api-Key", "apiKey", "client_secret", "Set-Cookie", "accessToken", "db_password"]
)
def test_telling_names_are_known_in_every_style(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["tokens", "secretary", "path", "cookies_accepted_at", "keyboard"])
def test_names_that_only_resemble_them_are_not_masked(name: str) -> None:
    assert not is_secret_name(name)


def _by_argument(value: str) -> None:
    logging.getLogger("third.party").warning("sent %s", value)


def _by_structlog(value: str) -> None:
    structlog.get_logger("ours").info("sent", argument=value, nested={"deep": [value]}, raw=value.encode())


def _by_key(value: str) -> None:
    structlog.get_logger("ours").info("sent", authorization=value, nested={"api_key": value})


def _by_traceback(value: str) -> None:
    try:
        raise RuntimeError(f"upstream said {value}") from ValueError(json.dumps(value))
    except RuntimeError:
        logging.getLogger("third.party").exception("failed")


def _by_structlog_traceback(value: str) -> None:
    try:
        int(value)
    except ValueError:
        structlog.get_logger("ours").exception("failed", url=f"https://x.example/?q={quote(value, safe='')}")


def _by_repr(value: str) -> None:
    class Holder:
        def __repr__(self) -> str:
            return f"Holder({value!r})"

    structlog.get_logger("ours").info("holds", thing=Holder())
    logging.getLogger("third.party").info("holds %r", Holder())


def _by_context(value: str) -> None:
    with structlog.contextvars.bound_contextvars(subject=value):
        structlog.get_logger("ours").info("within")
        logging.getLogger("third.party").info("within")


ROADS = [_by_argument, _by_structlog, _by_key, _by_traceback, _by_structlog_traceback, _by_repr, _by_context]


@pytest.mark.parametrize("road", ROADS)
def test_no_road_into_the_log_lets_a_secret_through(canary: Secret, written: io.StringIO, road) -> None:
    road(CANARY)
    assert MASK in written.getvalue()
    assert leaks(written.getvalue(), CANARY) == []


def test_control_characters_can_neither_forge_a_line_nor_reach_the_terminal(written: io.StringIO) -> None:
    structlog.get_logger("ours").info("from server", words="one\n\x1b[31mlevel=error forged\x9b\u202e\r")
    logging.getLogger("third.party").warning("two\n\x1b]0;title\x07")
    lines = written.getvalue().splitlines()
    assert len(lines) == 2
    assert not set("\x1b\x9b\x07\r\u202e") & set(written.getvalue())


def test_the_json_form_is_one_object_a_line_with_time_level_and_logger(settings: object) -> None:
    with captured(settings, "json") as stream:
        logging.getLogger("third.party").warning("hello %s", "there")
    line = json.loads(stream.getvalue())
    assert (line["message"], line["level"], line["logger"]) == ("hello there", "warning", "third.party")
    assert line["at"].endswith("Z")
