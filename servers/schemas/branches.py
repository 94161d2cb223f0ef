"""Which branch of a union a value belongs to, and what distinguishes a new value of one branch from the others."""

from servers.schemas.kinds import Union
from servers.schemas.match import fits, likeness
from servers.schemas.resolve import Document
from servers.schemas.shapes import Schema, Unsupported, only_value, types_of
from servers.schemas.values import ABSENT, FRESH, Branch, Draft, loose, same


def choose(document: Document, union: Union, draft: Draft) -> int:
    """The branch that a person chose, else the first that the value fits, else the most similar one, else the first.
    For a newly added value: the first that is not null."""
    if isinstance(draft, Branch):
        return draft.index if 0 <= draft.index < len(union.branches) else 0
    if draft is FRESH:
        return next((index for index, branch in enumerate(union.branches) if not _is_null(document, branch)), 0)
    value = loose(draft)
    if value is ABSENT:
        return 0
    for index, branch in enumerate(union.branches):
        if fits(document, branch, value):
            return index
    scores = [likeness(document, branch, value) for branch in union.branches]
    return scores.index(max(scores))


def _is_null(document: Document, branch: Schema) -> bool:
    try:
        flat, _ = document.flatten(branch)
    except Unsupported:
        return False
    return types_of(flat) == ["null"] or only_value(flat) == [None]


def begin(union: Union, index: int) -> Draft:
    """A new value of a branch, with the constants that distinguish it from the other branches, even if the schema does
    not require them. Without them, the server would have to guess which branch was chosen."""
    telling = {
        key: value
        for key, value in union.constants[index].items()
        if any(key in other and not same(other[key], value) for other in union.constants)
    }
    return telling or FRESH
