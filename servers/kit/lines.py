"""Lines of what a text field holds: with an entry on each, or as they are."""


def unique_lines(text: str) -> list[str]:
    """In their order, without blank ones and the blanks around them."""
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))


def lines_as_posted(text: str) -> list[str]:
    """A browser posts each line's end as CRLF, whatever it was."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
