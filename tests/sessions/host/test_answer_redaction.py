"""A server's own secrets are masked in everything that it sends."""

import base64
import json

import pytest

from servers.secret import Secret
from sessions.host.answer_redaction import MASK, Redactor, dumped
from tests.mcpadmin.test_log_redaction import encodings, leaks

SECRET = 'cäN4ry/"quoted"\\back+=%!(*<&\''


def test_a_secret_is_masked_wherever_it_is_in_a_result() -> None:
    redactor = Redactor([Secret("s3cr3t-token")])
    value = {"content": [{"text": "it is s3cr3t-token."}], "s3cr3t-token": 1}
    assert json.loads(redactor.json_text(value)) == {"content": [{"text": f"it is {MASK}."}], MASK: 1}


def test_the_token_of_an_authorization_header_is_masked_without_its_scheme() -> None:
    redactor = Redactor([Secret("Bearer abcdefgh")])
    assert redactor.text("got abcdefgh, Bearer abcdefgh") == f"got {MASK}, {MASK}"


@pytest.mark.parametrize("name", encodings(SECRET))
def test_a_secret_is_masked_in_every_encoding_a_server_may_wrap_it_in(name: str) -> None:
    redactor = Redactor([Secret(f"Bearer {SECRET}")])
    told = f"before {encodings(SECRET)[name]} after"
    assert leaks(redactor.text(told), SECRET) == []
    assert leaks(redactor.json_text({told: [told]}), SECRET) == []
    assert leaks(redactor.json_text({"big": 2**70, "told": told}), SECRET) == []


def test_masking_never_breaks_the_json_around_it() -> None:
    redactor = Redactor([Secret('nine"\\'), Secret("nabc")])
    value = ["\nabc", 'nine"\\', "plain"]
    assert json.loads(redactor.json_text(value)) == ["\nabc", MASK, "plain"]


def test_a_result_without_secrets_keeps_every_character() -> None:
    value = {"big": 2**70, "text": "ü \ud800 \0", "list": [None, 1.5, True]}
    assert json.loads(Redactor([Secret("token-1")]).json_text(value)) == value


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_value_that_nests_deeply_is_written_and_one_that_nests_too_deeply_refused() -> None:
    assert dumped(nested(300)).count("[") == 301
    with pytest.raises(ValueError, match="nested too deeply"):
        dumped(nested(50_000))


def test_a_value_too_short_to_be_a_secret_is_left_alone() -> None:
    assert Redactor([Secret("on")]).text("on and on") == "on and on"


def test_a_session_that_learns_tokens_for_months_forgets_the_oldest_of_them_and_no_credential() -> None:
    redactor = Redactor([Secret("hunter2")])
    tokens = [f"{number:04}-" + "token" * 20 for number in range(300)]
    for token in tokens:
        redactor.learn([Secret(token)])
    assert redactor.text(f"hunter2, {tokens[-1]}, {tokens[-50]}") == f"{MASK}, {MASK}, {MASK}"
    assert redactor.text(tokens[0]) == tokens[0]


def test_a_secret_of_digits_is_masked_where_it_comes_back_as_a_number() -> None:
    redactor = Redactor([Secret("84731122"), Secret("1000")])
    value = {"pin": 84731122, "float": 84731122.0, "longer": 847311220, "maximum": 1000, "is": True, "inf": [1e999]}
    assert redactor.value(value) == {**value, "pin": MASK, "float": MASK}


def test_of_a_basic_header_the_password_is_masked_too() -> None:
    header = "Basic " + base64.b64encode(b"ann:s3cret:word").decode()
    assert Redactor([Secret(header)]).text(f"{header}, ann:s3cret:word, s3cret:word") == f"{MASK}, {MASK}, {MASK}"
    assert Redactor([Secret("Basic plain words")]).text("plain words") == MASK


def test_a_key_in_several_lines_is_masked_line_by_line() -> None:
    lines = [f"{number}" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" for number in range(3)]
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "short", "-----END PRIVATE KEY-----"])
    redactor = Redactor([Secret(key)])
    assert [redactor.text(f"  {line}") for line in lines] == [f"  {MASK}"] * 3
    assert redactor.text("-----BEGIN PRIVATE KEY-----, short") == "-----BEGIN PRIVATE KEY-----, short"
    assert redactor.text(f"it is {key}.") == f"it is {MASK}."


ACCOUNT = {
    "type": "service_account",
    "project_id": "shop-473920",
    "private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----\n",
    "token_uri": "https://oauth2.example.com/token",
}


@pytest.mark.parametrize(
    ("value", "told", "masked"),
    [
        ('{"X-Api-Key": "abc123def"}', "401 for key abc123def", f"401 for key {MASK}"),
        ('{"Authorization": "Bearer abc123def"}', "got abc123def", f"got {MASK}"),
        ('{"servers": [{"db": "redis://:s3cret@h"}]}', "AUTH s3cret", f"AUTH {MASK}"),
        (json.dumps(ACCOUNT), "MIIEvQIBADANBgkqhkiG9w0BAQ", MASK),
        (
            "postgresql://bob:pa%40ss@db/x",
            'password "pa@ss" or pa%40ss for bob',
            f'password "{MASK}" or {MASK} for bob',
        ),
        ("https://glpat-abcdefgh123@git.example/x", "user glpat-abcdefgh123", f"user {MASK}"),
        ("jdbc:postgresql://db/x?user=fred&password=s3cret%2Bword", "s3cret+word of fred", f"{MASK} of fred"),
        ("theme=dark; session=abc123def; x=y", "session abc123def, dark", f"session {MASK}, dark"),
        (
            "host=db.corp.example user=ann password=tr0ub4dor",
            "tr0ub4dor at db.corp.example",
            f"{MASK} at db.corp.example",
        ),
        ('{"supportPassword": "Winter-2024-x"}', "for Winter-2024-x", f"for {MASK}"),
        ("Server=db;allow_token=Winter-2024-x", "for Winter-2024-x", f"for {MASK}"),
    ],
)
def test_of_a_secret_in_several_parts_the_secret_ones_are_masked_alone(value: str, told: str, masked: str) -> None:
    redactor = Redactor([Secret(value)])
    assert redactor.text(told) == masked
    assert redactor.text(f"it is {value}.") == f"it is {MASK}."


def test_what_is_no_secret_in_such_a_value_stays_readable() -> None:
    said = (
        "service_account of shop-473920 at https://oauth2.example.com/token, postgres, c2Vj==, read-write, inventory, "
        "SCRAM-SHA-256, ActiveDirectoryPassword, eu-central-1, login.example.com, password"
    )
    values = [
        json.dumps(ACCOUNT),
        "postgresql://postgres:postgres@db/shop",
        "[broken",
        "[" * 50_000,
        "http://[x@",
        "postgresql://app:S3cretWord@db1,db2/app?target_session_attrs=read-write",
        "mongodb+srv://u:p4ssword@c.example/inventory?authSource=inventory&authMechanism=SCRAM-SHA-256",
        "mysql://u:p4ssword@c.example/inventory?auth_db=inventory",
        "Server=db;Authentication=ActiveDirectoryPassword;Pwd=tr0ub4dor",
        '{"residency": "eu-central-1", "authority": "login.example.com", "allowed_auth": ["password"]}',
        "c2Vj==",
    ]
    assert Redactor(map(Secret, values[:-1])).text(said) == said
    assert Redactor([Secret(values[-1])]).text(said) == said.replace("c2Vj==", MASK)
