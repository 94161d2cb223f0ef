"""The lines of an export (docs/audit-proof.md): written in order, each ended by a newline."""

from collections.abc import Iterator, Sequence

from servers.models import AuditEvent


class ExportLines:
    """One export: `head()`, then `lines()` of each batch of events, then `end()`. Raises KeyMissing without the
    checkpoint key. `payloads`: with arguments and results, for those who may read them."""

    def __init__(self, *, filtered: bool, filter_text: str = "", payloads: bool = False, first_seq: int = 1) -> None:
        raise NotImplementedError

    #: number of the last event that a whole export holds: the log's end when this object was made
    last_seq: int

    def head(self) -> Iterator[str]:
        """Header, cut, checkpoints."""
        raise NotImplementedError

    def lines(self, events: Sequence[AuditEvent]) -> Iterator[str]:
        """Of events that follow those before by number: their lines, each followed by its payloads and its call."""
        raise NotImplementedError

    def end(self) -> str:
        raise NotImplementedError
