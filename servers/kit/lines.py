"""The lines of a text field: one entry per line, or unchanged."""


def unique_lines(text: str) -> list[str]:
    """In their order, stripped, without blank ones."""
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))


def lines_as_posted(text: str) -> list[str]:
    """Browsers post every line end as CRLF, whatever it was."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
