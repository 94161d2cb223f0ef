"""Keeps the changing tokens of a session out of pages and logs."""

from collections.abc import Iterable

from servers.secret import Secret
from sessions.host.answer_redaction import Redactor
from sessions.mcp.client.authorization import Grant

#: the log filter knows this many values per session: the newest
_KEPT = 12


class KnownTokens:
    """The redactor learns every value of a session's grants. The newest ones are kept alive for the log filter."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._known: list[Secret] = []

    def learn(self, grant: Grant) -> None:
        registered = grant.registration.secret if grant.registration else ""
        values = [grant.access_token, grant.refresh_token, registered, grant.dpop_key]
        self.learn_values(Secret(value) for value in values if value)

    def learn_values(self, values: Iterable[Secret]) -> None:
        fresh = list(values)
        self._known = [*self._known, *fresh][-_KEPT:]
        self._redactor.learn(fresh)
