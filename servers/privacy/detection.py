"""Secrets that are recognized by their shape alone: tokens and keys whose issuers gave them a fixed prefix.

This is our own short list: the libraries for this (detect-secrets, gitleaks' rules) are made for lines of source code,
take milliseconds a line and guess by entropy, which would mask ordinary arguments. A shape is listed here if its issuer
documents it and it does not occur in ordinary text. Every text of a call is searched, so each shape names literals that
must occur, and the expressions neither nest repetitions nor rescan a text from each of many possible starts: their time
is linear in the length of the text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from servers.secret import MASK


@dataclass(frozen=True, eq=False)  # hashing a pattern is slow
class Shape:
    """`literals`: every match contains one of them, and also `also`. What the group `secret` matches is masked; without
    such a group, the whole match. `quoted`: the pattern for texts with a backslash, which takes twice as long."""

    name: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    quoted: re.Pattern[str]
    also: str = ""

    def may_be_in(self, text: str) -> bool:
        return any(literal in text for literal in self.literals) and self.also in text


def _shape(name: str, literals: str, pattern: str, also: str = "") -> Shape:
    quoted = re.compile(pattern.replace(r"\b", _EDGE, 1))
    return Shape(name, tuple(literals.split()), re.compile(pattern), quoted, also)


#: start of a word, also after a JSON escape: logs quote JSON, and truncated JSON is searched as raw text
_EDGE = r"(?:\b|(?<=\\[bfnrt]))"
#: what may surround a name and its value, even if the JSON that contains them was quoted
_QUOTES = r"[\\\"']{0,4}"


SHAPES = (
    _shape(
        "Private key",
        "PRIVATE",
        # An encrypted key has headers with hyphens.
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?P<secret>(?:[^-]|-(?!----)){20,20000})"
        r"(?:-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----)?",
    ),
    _shape(
        "Private key",  # with its beginning cut off
        "PRIVATE",
        r"\A(?P<secret>[^-]{20,20000})-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----",
    ),
    _shape("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b"),
    _shape("GitHub token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{60,255}\b"),
    _shape(
        "GitLab token",
        "glpat- gloas- gldt- glrt- glcbt- glptt- glft- glsoat-",
        r"\bgl(?:pat|oas|dt|rt|cbt|ptt|ft|soat)-[A-Za-z0-9_.-]{20,255}",
    ),
    _shape("Slack token", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xapp-", r"\b(?:xox[bpares]|xapp)-[A-Za-z0-9-]{10,255}"),
    _shape(
        "Slack webhook",
        "hooks.slack.com/",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_+-]{20,200})",
    ),
    _shape("AWS access key", "AKIA ASIA", r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b"),
    _shape(
        "AWS secret key",
        "aws_secret_access_key AWS_SECRET_ACCESS_KEY ecretAccessKey",
        r"(?:aws_secret_access_key|AWS_SECRET_ACCESS_KEY|[sS]ecretAccessKey)"
        + _QUOTES
        + r"\s{0,5}[=:]\s{0,5}"
        + _QUOTES
        # not \b: the last character may be / or +
        + r"(?P<secret>[A-Za-z0-9/+=]{40})(?![A-Za-z0-9/+=])",
    ),
    _shape("Google API key", "AIza", r"\bAIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _shape("Google access token", "ya29.", r"\bya29\.[A-Za-z0-9_-]{20,2000}"),
    _shape("Google client secret", "GOCSPX-", r"\bGOCSPX-[A-Za-z0-9_-]{28}"),
    _shape("Stripe key", "sk_live_ rk_live_ sk_test_ rk_test_", r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}\b"),
    _shape("Webhook secret", "whsec_", r"\bwhsec_[A-Za-z0-9+/=]{24,255}"),
    _shape("Anthropic key", "sk-ant-", r"\bsk-ant-[A-Za-z0-9_-]{20,255}"),
    _shape("OpenAI key", "sk-proj- sk-svcacct- sk-admin-", r"\bsk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,255}"),
    _shape("OpenAI key", "T3BlbkFJ", r"\bsk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}\b"),
    _shape("Hugging Face token", "hf_", r"\bhf_[A-Za-z0-9]{34,}\b"),
    _shape("mcpadmin token", "mca_ mco_ mcr_", r"\bmc[aor]_[a-z0-9]{12}_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    _shape("npm token", "npm_", r"\bnpm_[A-Za-z0-9]{36}\b"),
    _shape("PyPI token", "pypi-AgE", r"\bpypi-AgE[A-Za-z0-9_-]{50,1000}"),
    _shape("SendGrid key", "SG.", r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    _shape("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", r"\bdo[opr]_v1_[a-f0-9]{64}\b"),
    _shape("Shopify token", "shpat_ shpca_ shppa_ shpss_", r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}\b"),
    _shape(
        "JSON Web Token",
        "eyJ",
        # What only begins like a token is a match without a secret: it may contain thousands of further beginnings.
        r"\b(?:(?P<secret>eyJ[A-Za-z0-9_-]{10,}+\.eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,})|eyJ[A-Za-z0-9_-]{10,})",
    ),
    _shape(
        "Password in a URL",
        "://",
        # A password may contain a colon, and it extends to the last @.
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@\"'<>]{0,100}:"
        r"(?P<secret>[^\s/@\"'<>]{3,200}(?:@[^\s/@?#\"'<>]{0,100}){0,2})@",
        also="@",
    ),
    _shape(
        "Authorization header",
        "Bearer bearer BEARER",
        r"(?i:\bAuthorization" + _QUOTES + r"\s{0,3}[:=]\s{0,3}" + _QUOTES + r"Bearer) {1,3}"
        r"(?P<secret>[A-Za-z0-9._~+/=-]{16,8000})",
    ),
)


_BY_LITERAL = tuple((literal, shape) for shape in SHAPES for literal in shape.literals)


def shapes_in(text: str) -> list[Shape]:
    """The shapes that may occur in `text`, which may be JSON: fast, and mostly none. Every text of a call is searched,
    so this is one loop: calling `may_be_in` for each shape takes six times as long."""
    found = [shape for literal, shape in _BY_LITERAL if literal in text and shape.also in text]
    return list(dict.fromkeys(found)) if len(found) > 1 else found


def mask(text: str, shapes: Sequence[Shape] = SHAPES) -> tuple[str, int]:
    """Return `text` with each detected secret masked, and how many there were."""
    count = 0
    if len(text) < _SHORTEST:
        return text, count
    for shape in shapes_in(text):
        if shape in shapes and shape.may_be_in(text):  # an earlier one may have masked it
            text, found = _masked(text, shape.quoted if "\\" in text else shape.pattern)
            count += found
    return text, count


#: names of members whose values are recognized by the name
_NAMES = re.compile("authorization|secret_?access_?key", re.IGNORECASE)
#: only the end of a name decides, this many characters. Each text of a long list is searched together with it
_NAME_CHARS = 200
#: characters of the shortest match, a password in a URL
_SHORTEST = 10


def mask_member(name: str, text: str, shapes: Sequence[Shape] = SHAPES) -> tuple[str, int]:
    """Like `mask`, for the member `name` of an object: some secrets are recognized by their names."""
    name = name[-_NAME_CHARS:]
    if not _NAMES.search(name):
        return mask(text, shapes)
    before = f"{name}: "
    masked, count = mask(before + text, shapes)
    # if the name itself was masked, it says nothing about the value
    return (masked[len(before) :], count) if masked.startswith(before) else mask(text, shapes)


def _masked(text: str, pattern: re.Pattern[str]) -> tuple[str, int]:
    group = "secret" if "secret" in pattern.groupindex else 0
    parts: list[str] = []
    end = count = 0
    for match in pattern.finditer(text):
        if match[group] is not None:
            parts += [text[end : match.start(group)], MASK]
            end = match.end(group)
            count += 1
    return ("".join((*parts, text[end:])) if count else text), count


_KEY_BEGINS = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?!.*-----END)")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{40,}")
_KEY_LAST = re.compile(r"\s*[A-Za-z0-9+/=]+\s*")
#: header lines of an encrypted key, or of PGP, before its body
_KEY_HEADERS = 10


class KeyLines:
    """Mask private keys in one stream of lines that were masked individually: a private key spans several lines."""

    def __init__(self) -> None:
        self._headers, self._in_body = 0, False

    def masked(self, line: str) -> str:
        if _KEY_BEGINS.search(line):
            self._headers, self._in_body = _KEY_HEADERS, False
            return line
        if not (self._headers or self._in_body) or line.lstrip().startswith("-----END "):
            self._headers, self._in_body = 0, False
            return line
        if _KEY_BODY.search(line):
            self._headers, self._in_body = 0, True
            return _KEY_BODY.sub(MASK, line)
        if self._in_body:
            self._in_body = False
            return MASK if _KEY_LAST.fullmatch(line) else line
        self._headers -= 1
        return line
