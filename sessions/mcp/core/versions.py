"""The five protocol revisions as data.

Source: modelcontextprotocol.io/specification, one folder for each revision.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Era(StrEnum):
    #: handshake with `initialize`, wire sessions
    LEGACY = "legacy"
    #: stateless; metadata travels with each request
    MODERN = "modern"


@dataclass(frozen=True, slots=True)
class Revision:
    name: str
    era: Era
    #: a JSON array of messages may arrive
    batches: bool = False
    #: after initialize, requests carry the HTTP header MCP-Protocol-Version
    version_header: bool = True
    elicitation: bool = False
    elicitation_url: bool = False
    sampling_tools: bool = False
    #: tasks are part of the revision (later ones have an extension)
    core_tasks: bool = False
    #: a server that completes arguments declares it as a capability
    completions_declared: bool = True
    completion_context: bool = False
    extensions: bool = False
    #: a client resumes a response whose stream ends early, and waits before that for as long as the server says
    resumes: bool = False


REVISIONS: Final = {
    revision.name: revision
    for revision in (
        Revision(
            "2026-07-28",
            Era.MODERN,
            elicitation=True,
            elicitation_url=True,
            sampling_tools=True,
            completion_context=True,
            extensions=True,
        ),
        Revision(
            "2025-11-25",
            Era.LEGACY,
            elicitation=True,
            elicitation_url=True,
            sampling_tools=True,
            core_tasks=True,
            completion_context=True,
            resumes=True,
        ),
        Revision("2025-06-18", Era.LEGACY, elicitation=True, completion_context=True),
        Revision("2025-03-26", Era.LEGACY, batches=True, version_header=False),
        Revision("2024-11-05", Era.LEGACY, version_header=False, completions_declared=False),
    )
}

#: newest first, which is our order of preference
MODERN: Final = tuple(name for name, revision in REVISIONS.items() if revision.era is Era.MODERN)
LEGACY: Final = tuple(name for name, revision in REVISIONS.items() if revision.era is Era.LEGACY)

PREFERRED_MODERN: Final = MODERN[0]
PREFERRED_LEGACY: Final = LEGACY[0]


def best_mutual(offered: object, ours: tuple[str, ...]) -> str | None:
    """Our most preferred revision among those in a server's (untrusted) list, or None."""
    if not isinstance(offered, list):
        return None
    return next((name for name in ours if name in offered), None)
