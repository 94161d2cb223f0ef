"""The lines of an export (docs/audit-proof.md): written in order, each ended by a newline."""

from collections.abc import Iterator

from servers.models import AuditEvent, Payload


class ExportLines:
    """One export, from `head()` over `event()` and `payload()` to `end()`. Raises KeyMissing without the checkpoint key."""

    def __init__(self, *, filtered: bool, filter_text: str = "") -> None:
        raise NotImplementedError

    #: number of the last event that a whole export holds: the log's end when this object was made
    last_seq: int

    def head(self) -> Iterator[str]:
        """Header, cut and checkpoints."""
        raise NotImplementedError

    def event(self, event: AuditEvent) -> str:
        """By ascending number."""
        raise NotImplementedError

    def payload(self, payload: Payload, text: str | None) -> str:
        """Of the event just written; `text` as `payloads.read` gives it, None when it was erased."""
        raise NotImplementedError

    def end(self) -> str:
        raise NotImplementedError
