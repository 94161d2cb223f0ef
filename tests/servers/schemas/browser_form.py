"""What a browser without script would post: the successful controls of an HTML fragment."""

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Select:
    name: str
    options: list[tuple[str, bool]] = field(default_factory=list)

    def value(self) -> str | None:
        chosen = [value for value, selected in self.options if selected]
        return chosen[-1] if chosen else self.options[0][0] if self.options else None


class FormParser(HTMLParser):
    """Collects name/value pairs like the HTML standard's "constructing the entry list", but leaves buttons out."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.entries: list[tuple[str, str]] = []
        self.buttons: list[tuple[str, str]] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self._area: tuple[str, list[str]] | None = None
        self._select: Select | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.tags.append((tag, given))
        if tag == "input":
            self._input(given)
        elif tag == "textarea":
            self._area = (given["name"], [])
        elif tag == "select":
            self._select = Select(given["name"])
        elif tag == "option" and self._select is not None:
            self._select.options.append((given["value"], "selected" in given))
        elif tag == "button" and "name" in given:
            self.buttons.append((given["name"], given["value"]))

    def _input(self, given: dict[str, str]) -> None:
        kind = given.get("type", "text")
        if kind in {"checkbox", "radio"}:
            if "checked" in given:
                self.entries.append((given["name"], given.get("value", "on")))
            return
        value = given.get("value", "")
        self.entries.append((given["name"], value.replace("\n", "").replace("\r", "") if kind != "hidden" else value))

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area is not None:
            name, parts = self._area
            text = "".join(parts)
            self.entries.append((name, text.removeprefix("\n").replace("\r\n", "\n").replace("\r", "\n")))
            self._area = None
        elif tag == "select" and self._select is not None:
            value = self._select.value()
            if value is not None:
                self.entries.append((self._select.name, value))
            self._select = None

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self._area[1].append(data)
        else:
            self.text.append(data)


def parsed_html(html: str) -> FormParser:
    parser = FormParser()
    parser.feed(html)
    parser.close()
    return parser


def posted(html: str) -> dict[str, list[str]]:
    """Line breaks in names and values are sent as CRLF."""
    data: dict[str, list[str]] = {}
    for name, value in parsed_html(html).entries:
        data.setdefault(crlf(name), []).append(crlf(value))
    return data


def crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
