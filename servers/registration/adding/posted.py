"""What the *Add server* page posts: the box, the values that its text needs, and the fields filled from it."""

from collections.abc import Mapping
from typing import Any

from django.http import QueryDict

from servers.configuration import value_key
from servers.numbers import whole_number
from servers.registration.adding.reading import Reading, read_source
from servers.registration.forms.values import PREFIX, ROWS_READ
from servers.secret import Secret

SOURCE, INDEX, FILLED_FROM, NEED = "source", "source_index", "filled_from", "need-"


def reading_of(data: Mapping[str, Any]) -> Reading | None:
    """None if the box is empty."""
    text = str(data.get(SOURCE, ""))
    if not text.strip():
        return None
    typed = {
        number: str(value).strip()
        for name, value in data.items()
        if name.startswith(NEED) and (number := whole_number(name.removeprefix(NEED))) is not None
    }
    return read_source(text, whole_number(str(data.get(INDEX, ""))) or 0, typed)


def is_filled_from(data: Mapping[str, Any], reading: Reading) -> bool:
    """Whether the fields were filled from the current content of the box."""
    return str(data.get(FILLED_FROM, "")) == reading.digest


def with_secrets(data: QueryDict, reading: Reading | None) -> QueryDict:
    """The fields, with the secrets from the box in the rows that were left empty for them: the page never had them."""
    if reading is None or reading.registration is None or not is_filled_from(data, reading):
        return data
    secrets = {
        value_key(value.kind, value.name): value.text()
        for value in reading.registration.used_values()
        if isinstance(value.value, Secret)
    }
    data = data.copy()
    posted = whole_number(data.get(f"{PREFIX}-TOTAL_FORMS", "")) or 0
    for row in range(min(posted, ROWS_READ)):  # as many as the formset reads, whatever number was posted
        key = value_key(data.get(f"{PREFIX}-{row}-kind", ""), data.get(f"{PREFIX}-{row}-name", ""))
        if key in secrets and f"{PREFIX}-{row}-secret" in data and not data.get(f"{PREFIX}-{row}-value"):
            data[f"{PREFIX}-{row}-value"] = secrets[key]
    return data
