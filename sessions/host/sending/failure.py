"""The one error that all senders raise."""

from servers.storable import storable


class NotDelivered(Exception):
    """The receiver did not confirm, but may have the data anyway. `detail` is a sentence for the page. It may quote
    the receiver, and any database can store it: a row that cannot be written would be retried forever.

    `status`: the status of an HTTP answer. `retry_after`: seconds that the receiver asked for.
    """

    def __init__(self, detail: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.detail, self.status, self.retry_after = storable(detail), status, retry_after

    @property
    def too_large(self) -> bool:
        return self.status == 413
