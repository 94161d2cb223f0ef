"""Detects fields of a server's form that ask for a secret, which the protocol forbids: by name, title and format.

Descriptions are ignored: they mention secrets mostly to say that none is needed. A word inside another does not count
(*pin* in *spinning*). The end of a name decides: `db_password` is a password, `password_policy` is a policy.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

SHOWN: Final = 10
NAME_CHARS: Final = 80
_DEPTH: Final = 6
#: fields that are looked at; a form does not show more
_MOST: Final = 2_000

_FORMATS: Final = frozenset({"password", "secret", "token", "api-key", "apikey", "credential"})


def _visible(text: str) -> str:
    """The text without accents and invisible characters."""
    return "".join(
        char for char in unicodedata.normalize("NFKD", text) if unicodedata.category(char) not in ("Cf", "Cc", "Mn")
    )


def _set(words: str) -> frozenset[str]:
    return frozenset(_visible(words).split())


#: last words that mean a secret, unless a word of _HARMLESS comes before
_HEADS: Final = _set(
    "password passwd passwords pwd passphrase passcode secret secrets token apikey credential credentials pin cvv cvc cvc2 "
    "cvv2 otp totp mnemonic jwt bearer "
    "passwort kennwort contraseña senha wachtwoord hasło haslo parola пароль 密码 密碼 パスワード 비밀번호"
)
#: last two words that mean a secret
_PAIRS: Final = frozenset(
    f"{first} {last}"
    for last, firsts in {
        "key": "api access private secret signing encryption ssh service account master auth deploy storage shared "
        "recovery wallet",
        "code": "pin otp totp mfa 2fa security verification recovery backup authentication auth login access secret "
        "onetime sms",
        "phrase": "secret seed recovery pass",
        "words": "seed recovery",
        "word": "secret pass",
        "answer": "secret security",
        "tokens": "access refresh api auth bearer session",
        "seed": "wallet totp",
        "passe": "de",  # mot de passe
        "number": "pin cvv",
    }.items()
    for first in firsts.split()
)
#: before a word of _HEADS these make it harmless
_HARMLESS: Final = _set(
    "page next previous continuation sync cursor paging pagination delta skip resume cancel cancellation map drop location "
    "stop lexer parser csrf no without forgot reset public design"
)
#: a word that ends with one of these is a secret, whatever comes before
_ENDINGS: Final = tuple(
    _set(
        "password passwd passphrase passcode apikey secretkey privatekey accesskey clientsecret accesstoken authtoken "
        "refreshtoken bearertoken apitoken sessiontoken credentials seedphrase"
    )
)
#: last words of numeric secrets
_NUMBERS: Final = frozenset({"pin", "otp", "totp", "cvv", "cvc", "cvv2", "cvc2", "passcode", "code", "number"})
#: meaningless at the end of a name
_TRAILING: Final = _set(
    "confirmation confirm confirmed again repeat repeated retype verify value text input field string new old current "
    "please here plain plaintext raw optional required"
)
_BEFORE_HEAD_ENDS: Final = _set("for of to from in on at with by as per used fur pour de para della")
_LOOKALIKES: Final = str.maketrans("аеорсухіѕԁοα", "aeopcyxisdoa")
_DIGIT_LETTERS: Final = str.maketrans("0134578@$!", "oleastbasi")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ASIDES: Final = re.compile(r"[(\[{（][^)\]}）]*[)\]}）]")


def secret_fields(schema: Mapping[str, Any]) -> list[str]:
    """The labels, as the form shows them, of the fields that ask for a secret."""
    fields = islice(_fields(schema, 0), _MOST)
    found = [_label(name, field) for name, field in fields if asks_for_secret(name, field)]
    return found[:SHOWN]


def asks_for_secret(name: str, field: Mapping[str, Any]) -> bool:
    form = field.get("format")
    if (isinstance(form, str) and form.lower() in _FORMATS) or field.get("writeOnly") is True:
        return True
    kinds = _types(field)
    if _is_choice(field) or kinds <= {"boolean", "array", "object", "null"}:
        return False
    title = field.get("title")
    names = [name, title] if isinstance(title, str) else [name]
    return any(_is_secret(text[:300], number_only=kinds <= {"integer", "number", "null"}) for text in names)


def _types(field: Mapping[str, Any]) -> frozenset[str]:
    """A field without a type may contain text."""
    kind = field.get("type", "string")
    return frozenset(entry for entry in (kind if isinstance(kind, list) else [kind]) if isinstance(entry, str))


def _is_choice(field: Mapping[str, Any]) -> bool:
    """The server already knows the possible values."""
    options = field.get("oneOf") or field.get("anyOf")
    constants = isinstance(options, list) and all(isinstance(option, dict) and "const" in option for option in options)
    return bool(field.get("enum")) or "const" in field or (bool(options) and constants)


def _is_secret(text: str, *, number_only: bool) -> bool:
    words = _head(_words(text))
    if not words:
        return False
    last = words[-1]
    if number_only and last not in _NUMBERS:
        return False
    before = words[-2] if len(words) > 1 else ""
    if f"{before} {last}" in _PAIRS or last.endswith(_ENDINGS):
        return True
    return last in _HEADS and before not in _HARMLESS


def _head(words: list[str]) -> list[str]:
    """The words up to the one that says what it is: “Password for the database, again” is a password."""
    while words and words[-1] in _TRAILING:
        words = words[:-1]
    end = next((at for at, word in enumerate(words) if at and word in _BEFORE_HEAD_ENDS), len(words))
    if words[end : end + 2] == ["de", "passe"]:
        return words
    head = words[:end]
    while len(head) > 1 and (head[-1] in _TRAILING or head[-1].isdigit()):
        head = head[:-1]
    return head


def _words(text: str) -> list[str]:
    """The words in lower case, as a reader sees them: hidden and look-alike characters do not help to evade the
    check."""
    spaced = _CAMEL.sub(" ", _ASIDES.sub(" ", _visible(text))).replace("_", " ")
    return [_plain(word) for word in re.findall(r"[\w@$!]+", spaced) if word.strip("@$!")]


def _plain(word: str) -> str:
    lower = word.lower().strip("!")
    latin = lower.translate(_LOOKALIKES)
    for spelled in (lower, latin, latin.rstrip("0123456789"), latin.translate(_DIGIT_LETTERS)):
        if spelled in _HEADS or spelled.endswith(_ENDINGS):
            return spelled
    return latin


def _fields(schema: Any, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every named field, including nested forms, which the protocol does not allow. Those of one level come before
    those nested in them: what a form does not show cannot hide what it does."""
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return
    named = schema.get("properties")
    entries = islice(named.items(), _MOST) if isinstance(named, Mapping) else ()
    fields = [(name, field) for name, field in entries if isinstance(field, Mapping)]
    yield from fields
    for _, field in fields:
        yield from _fields(field, depth + 1)
    yield from _fields(schema.get("items"), depth + 1)
    for word in ("oneOf", "anyOf", "allOf"):
        options = schema.get(word)
        for option in options[:20] if isinstance(options, list) else ():
            yield from _fields(option, depth + 1)


def _label(name: str, field: Mapping[str, Any]) -> str:
    title = field.get("title")
    return (title if isinstance(title, str) and title else name)[:NAME_CHARS]
