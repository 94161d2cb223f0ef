"""Which branch of a union a value is in."""

from servers.schemas.kinds import Union
from servers.schemas.match import fits, likeness
from servers.schemas.resolve import Document
from servers.schemas.values import ABSENT, Branch, Draft, loose


def choose(document: Document, union: Union, draft: Draft) -> int:
    """The branch a person chose, else the first that the value fits, else the one most like it, else the first."""
    if isinstance(draft, Branch):
        return draft.index if 0 <= draft.index < len(union.branches) else 0
    value = loose(draft)
    if value is ABSENT:
        return 0
    for index, branch in enumerate(union.branches):
        if fits(document, branch, value):
            return index
    scores = [likeness(document, branch, value) for branch in union.branches]
    return scores.index(max(scores))
