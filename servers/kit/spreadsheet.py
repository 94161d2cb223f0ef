"""Text in the cells of spreadsheets: never a formula, and nothing in it is hidden (security: O15, O18)."""

from servers.kit.visible import visible_text

#: what a spreadsheet treats as the start of a formula, also after whitespace and in full width
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
_BLANK = " \t\r\n"


def is_risky(text: str) -> bool:
    return text[:1] in ("\t", "\r", "\n") or text.lstrip(_BLANK).startswith(_FORMULA)


def cell(text: str) -> str:
    """Text that a spreadsheet shows unchanged: an apostrophe precedes anything that it would treat as a formula."""
    return f"'{visible_text(text)}" if is_risky(text) else visible_text(text)
