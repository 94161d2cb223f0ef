"""Which form fields ask for a secret, on a corpus of fields from real servers and hostile ones."""

from typing import Any

import pytest

from sessions.inbox import secret_fields as module
from sessions.inbox.secret_fields import secret_fields

TEXT: dict[str, Any] = {"type": "string"}


def asked(name: str, **field: Any) -> list[str]:
    return secret_fields({"type": "object", "properties": {name: TEXT | field}})


#: the form of server-everything's trigger-elicitation-request, verbatim
EVERYTHING = {
    "name": {"title": "String", "type": "string", "description": "Your full, legal name"},
    "check": {"title": "Boolean", "type": "boolean", "description": "Agree to the terms and conditions"},
    "firstLine": {"title": "String with default", "type": "string", "description": "Favorite first line of a story"},
    "email": {"title": "String with email format", "type": "string", "format": "email"},
    "homepage": {"type": "string", "format": "uri", "title": "String with uri format"},
    "birthdate": {"title": "String with date format", "type": "string", "format": "date"},
    "integer": {
        "title": "Integer",
        "type": "integer",
        "description": "Your favorite integer (do not give us your phone number, pin, or other sensitive info)",
    },
    "untitledSingleSelectEnum": {"type": "string", "enum": ["Monica", "Rachel"]},
    "legacyTitledEnum": {"type": "string", "enum": ["pet-1"], "enumNames": ["Cats"]},
}


def test_the_form_of_the_reference_server_asks_for_no_secret() -> None:
    assert secret_fields({"type": "object", "properties": EVERYTHING}) == []


HARMLESS = [
    *("name", "email", "username", "account_id", "city", "key", "public_key", "primary_key", "sortKey", "keyboard"),
    *("spinning", "pinboard", "opinion", "shipping", "pinned", "map_pin", "secretary", "tokenize", "tokenizer"),
    *(
        "passwordless",
        "compass",
        "passport",
        "passenger",
        "bypass",
        "password_policy",
        "passwordLength",
        "passwordHint",
    ),
    *("token_type", "tokenCount", "token_limit", "tokenSymbol", "secret_name", "secretId", "secret_santa_name"),
    *("access_key_id", "api_key_name", "zip_code", "country_code", "promoCode", "error_code", "status_code", "code"),
    *("page_token", "nextPageToken", "continuation_token", "cursor", "max_tokens", "tokens", "number_of_tokens"),
    *("design_token", "drop_pin", "credential_type", "name_of_secret", "ssh_host", "signing_algorithm", "foreign_key"),
    *("postcode", "barcode", "keyword", "crossword", "mnemonics_enabled", "cvs", "jwt_issuer", "phrase", "answer"),
]


@pytest.mark.parametrize("name", HARMLESS)
def test_a_field_that_asks_for_no_secret_is_not_called_one(name: str) -> None:
    assert asked(name) == []


SECRET = [
    *("password", "Password", "PASSWORD", "user_password", "userPassword", "db-password", "newPassword", "old_passwd"),
    *("password_confirmation", "passwordAgain", "password2", "pwd", "passphrase", "passcode", "mypassword"),
    *("token", "access_token", "githubToken", "GITHUB_TOKEN", "bearerToken", "authtoken", "refresh_tokens"),
    *("api_key", "apiKey", "APIKey", "apikey", "OPENAI_API_KEY", "x-api-key", "secret", "client_secret"),
    *("clientSecret", "aws_secret_access_key", "secretKey", "private_key", "sshKey", "signing_key", "encryptionKey"),
    *("pin", "PIN", "pin_code", "card_pin", "cvv", "cvc", "otp", "otp_code", "verification_code", "mfaCode", "totp"),
    *("seed_phrase", "seedPhrase", "recovery_phrase", "mnemonic", "credentials", "credential", "secret_answer"),
    *("passwort", "contraseña", "mot_de_passe", "пароль", "密码", "password_for_db", "jwt"),
]


@pytest.mark.parametrize("name", SECRET)
def test_a_field_that_asks_for_a_secret_by_its_name_is_found(name: str) -> None:
    assert asked(name) == [name]


DISGUISED = {
    "zero width": "pass\u200bword",
    "soft hyphen": "pass\u00adword",
    "full width": "ｐａｓｓｗｏｒｄ",
    "cyrillic": "раsswоrd",
    "digits": "passw0rd",
    "signs": "p@$$w0rd",
    "accents": "pa\u0301ssword",
}


@pytest.mark.parametrize("name", DISGUISED.values(), ids=DISGUISED.keys())
def test_a_name_that_only_looks_like_one_is_found_as_well(name: str) -> None:
    assert asked(name) == [name]


@pytest.mark.parametrize(
    "title",
    [
        *(
            "Password",
            "Your password",
            "What is your API key?",
            "Password (min. 8 characters)",
            "PIN code",
            "GitHub token",
        ),
        *("Password for the database", "Repeat the password", "Mot de passe"),
    ],
)
def test_a_title_that_asks_for_a_secret_is_found_whatever_the_name(title: str) -> None:
    assert asked("value", title=title) == [title]


@pytest.mark.parametrize(
    "title",
    [
        *(
            "Number of tokens",
            "Token limit",
            "Password policy",
            "How long should the password be?",
            "Name of the secret",
        ),
        *("Where do you pin it?", "Favorite first line", "Project key prefix"),
    ],
)
def test_a_title_that_speaks_of_secrets_is_no_request_for_one(title: str) -> None:
    assert asked("value", title=title) == []


@pytest.mark.parametrize("field", [{"format": "password"}, {"format": "Password"}, {"writeOnly": True}])
def test_a_format_that_hides_what_is_typed_asks_for_a_secret(field: dict[str, Any]) -> None:
    assert asked("value", **field) == ["value"]


@pytest.mark.parametrize("words", ["Never enter a password or pin", "your API key is safe", "token", "PIN"])
def test_a_description_alone_says_nothing(words: str) -> None:
    assert asked("value", description=words) == []


@pytest.mark.parametrize(
    "field",
    [
        {"type": "boolean"},
        {"enum": ["a", "b"]},
        {"oneOf": [{"const": "a", "title": "A"}]},
        {"type": "array", "items": {"type": "string", "enum": ["a"]}},
        {"type": "integer"},
        {"type": ["number", "null"]},
    ],
)
def test_what_cannot_hold_a_secret_is_none(field: dict[str, Any]) -> None:
    assert asked("password", **field) == []


@pytest.mark.parametrize("name", ["pin", "otp", "cvv", "verification_code", "pin_number"])
def test_a_number_that_only_a_person_knows_is_a_secret(name: str) -> None:
    assert asked(name, type="integer") == [name]


@pytest.mark.parametrize("field", [7, None, [], "password"])
@pytest.mark.parametrize("title", [7, None, {}])
def test_whatever_a_hostile_schema_holds_is_read_without_a_crash(field: Any, title: Any) -> None:
    nested: dict[str, Any] = {"properties": {"password": {"type": "string", "title": title}}}
    schema = {
        "properties": {"x": field, "y": nested, "z": {"type": 7, "format": [], "enum": 3, "oneOf": 4, "items": 5}}
    }
    assert secret_fields(schema) == ["password"]


@pytest.mark.parametrize(
    "padding",
    [
        pytest.param({f"note{number}": TEXT for number in range(1_500)}, id="many fields"),
        pytest.param(
            {"note": TEXT | {"properties": {f"x{number}": TEXT for number in range(3_000)}}},
            id="properties of a text, which no form shows",
        ),
    ],
)
def test_a_secret_is_not_hidden_behind_other_fields(padding: dict[str, Any]) -> None:
    assert secret_fields({"properties": padding | {"password": TEXT}}) == ["password"]


def test_a_form_of_any_size_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at, real = [], module.asks_for_secret

    def asks_for_secret(name: str, field: Any) -> bool:
        looked_at.append(name)
        return real(name, field)

    monkeypatch.setattr(module, "asks_for_secret", asks_for_secret)
    inner = {"properties": {f"x{number}": TEXT for number in range(500)}}
    assert secret_fields({"properties": {f"y{number}": inner for number in range(500)}}) == []
    assert len(looked_at) == 2_000
