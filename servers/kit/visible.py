"""Makes characters visible that hide text from people or reorder it (controls, bidi, zero width, tags)."""

import re
import unicodedata
from collections.abc import Callable
from html import escape

# Bidirectional controls and isolates, zero width, invisible operators, soft hyphen, fillers, interlinear marks, BOM,
# tag characters, variation selectors, surrogates, and the C0/C1 controls except tab and newline.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_TAG_BASE = 0xE0000
_SHOWN_OF_A_RUN = 4
# Joins and colours emoji; it hides nothing where it follows a pictograph.
_EMOJI_GLUE = {"\u200d", "\ufe0f"}
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")


def visible_html(text: str) -> str:
    """As `marked_html`. Letters of a right-to-left script are isolated: they would reorder digits and words beside them."""
    shown = marked_html(text)
    return f"<bdi>{shown}</bdi>" if _RIGHT_TO_LEFT.search(text) else shown


def marked_html(text: str) -> str:
    """Escaped text with a marked span for each run of hidden characters; for element content only. `data-hid` has them all
    for js/copy.js. The CR of a Windows line end hides nothing."""
    return _replace(text.replace("\r\n", "\n"), _marker, escape)


def visible_text(text: str) -> str:
    """The same as plain text (not escaped): for attributes, which cannot contain markup."""
    return _replace(text, lambda run: f"[{_codes(run)}]", str)


def is_typed(typed: str, name: str) -> bool:
    """Whether someone typed this name to confirm. Hidden characters may be left out: no one can type them. Each run of
    whitespace counts as one space, as on the page, because a one-line field has no line breaks."""
    return typed == name or (_typeable(name) != "" and _typeable(typed) == _typeable(name))


def _typeable(text: str) -> str:
    return " ".join(HIDDEN.sub("", text).split())


def _replace(text: str, mark: Callable[[str], str], plain: Callable[[str], str]) -> str:
    parts, end = [], 0
    for match in HIDDEN.finditer(text):
        if _is_glue(text, match):
            continue
        parts += [plain(text[end : match.start()]), mark(match[0])]
        end = match.end()
    return "".join([*parts, plain(text[end:])])


def _is_glue(text: str, match: re.Match[str]) -> bool:
    before = text[match.start() - 1] if match.start() else ""
    return set(match[0]) <= _EMOJI_GLUE and bool(before) and unicodedata.category(before) in {"So", "Sk"}


def _marker(run: str) -> str:
    names = "; ".join(
        f"U+{ord(character):04X} {unicodedata.name(character, 'control character')}"
        for character in run[:_SHOWN_OF_A_RUN]
    )
    title = f"{len(run)} hidden characters: {names}" if len(run) > 1 else f"hidden character: {names}"
    codes = " ".join(f"{ord(character):x}" for character in run)
    return f'<span class="hid" title="{escape(title)}" data-hid="{codes}">{escape(_codes(run))}</span>'


def _codes(run: str) -> str:
    tagged = "".join(chr(ord(c) - _TAG_BASE) for c in run if 0xE0020 <= ord(c) <= 0xE007E)
    if len(tagged) > 1:
        return f"hidden text: {tagged[:200]}"
    codes = " ".join(f"U+{ord(c):04X}" for c in run[:_SHOWN_OF_A_RUN])
    return f"{codes} ×{len(run)}" if len(run) > _SHOWN_OF_A_RUN else codes
