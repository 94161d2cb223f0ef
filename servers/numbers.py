"""Numbers in text that others wrote: a URL, a form, a JSON Pointer."""


def whole_number(text: str) -> int | None:
    """ASCII digits only, and at most what a 64-bit column holds. None for everything else: `int` would also take signs,
    blanks, underscores and the digits of other scripts, and fails on a few thousand digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
