"""Finds known values in collected data, in the encodings in which leaks usually appear."""

import base64
import html
import json
from collections.abc import Mapping
from urllib.parse import quote

#: shorter pieces of base64 would occur by chance
_LEAST = 8


def encodings(value: str) -> dict[str, bytes]:
    """Eight encodings, computed without the product's own list."""
    raw = value.encode()
    forms = {
        "plain": raw,
        "url": quote(value, safe="").encode(),
        "json": json.dumps(value)[1:-1].encode(),
        "html": html.escape(value).encode(),
        "hex": raw.hex().encode(),
    }
    # The first and last group of four depend on the bytes around the value, so drop them.
    shifted = {f"base64+{shift}": base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3)}
    assert all(len(form) >= _LEAST for form in shifted.values())
    return forms | shifted


class Searcher:
    def __init__(self, values: Mapping[str, str]) -> None:
        self._forms = {
            (name, encoding): form for name, value in values.items() for encoding, form in encodings(value).items()
        }

    def hits(self, data: bytes) -> list[tuple[str, str]]:
        """(name of the value, encoding). Encodings with identical bytes count once."""
        found: dict[tuple[str, bytes], tuple[str, str]] = {}
        for key, form in self._forms.items():
            if form in data:
                found.setdefault((key[0], form), key)
        return sorted(found.values())

    def around(self, data: bytes) -> list[bytes]:
        """The surroundings of each hit, to help find the leak."""
        places = [data.find(form) for form in set(self._forms.values())]
        return [data[max(0, at - 150) : at + 80] for at in places if at >= 0]
