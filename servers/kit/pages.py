"""Pages of long lists, newest first. The cursor is the key of the last row shown, so that new rows shift nothing."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True)
class RowsPage(Generic[Row]):
    """`first`: no newer rows were left out. `older`: the value of ?before= for the next page, None on the last."""

    rows: list[Row]
    first: bool
    older: int | None


def page_before(rows: QuerySet[Row], key: str, before: int | None, size: int) -> RowsPage[Row]:
    """The newest `size` rows with a `key` below `before`. `key` is an integer column that grows."""
    if before is not None:
        rows = rows.filter(**{f"{key}__lt": before})
    found = list(rows.order_by(f"-{key}")[: size + 1])
    older = getattr(found[size - 1], key) if len(found) > size else None
    return RowsPage(found[:size], before is None, older)
