"""Lists that a text field holds, one entry a line."""


def unique_lines(text: str) -> list[str]:
    """In their order, without blank ones and the blanks around them."""
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
