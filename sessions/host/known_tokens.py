"""Tokens as they come and go while a session lives: pages and logs must never show one."""

from collections.abc import Iterable

from servers.secret import Secret
from sessions.client.authorization import Grant
from sessions.host.redaction import Redactor

#: live values of one session that the filter of the logs knows: those of the newest tokens
_KEPT = 12


class Known:
    """What is in the grants of one session is known to the redaction, and stays known while this lives."""

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
