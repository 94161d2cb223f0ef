"""The settings of a subscription, their bounds, and the signing secret of its webhook."""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError

from servers import crypto
from servers.secret import Secret
from servers.validators import validate_url
from sessions.models import Subscription

TABLE: Final = Subscription._meta.db_table
FIELD: Final = "webhook_sealed"
SECRET_PREFIX: Final = "whsec_"  # noqa: S105  by Standard Webhooks, no secret itself
_SECRET_BYTES = 32
_MIB = 1024 * 1024
URL_CHARS: Final = 2_000
#: minimum and maximum of each number, also for the form
BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "min_interval_seconds": (1, 86_400),
    "keep_count": (1, 10_000),
    "keep_days": (1, 3_650),
    "keep_bytes": (_MIB, 10 * 1024 * _MIB),
}


@dataclass(frozen=True)
class Settings:
    """`min_interval_seconds`: between two reads. Versions are kept by count, age and bytes; the newest always."""

    notify: bool = True
    min_interval_seconds: int = 5
    keep_count: int = 200
    keep_days: int = 90
    keep_bytes: int = 50 * _MIB
    webhook_url: str = ""

    @classmethod
    def of(cls, subscription: Subscription) -> "Settings":
        return cls(**{name: getattr(subscription, name) for name in cls.__dataclass_fields__})

    def check(self) -> None:
        """Raises ValidationError with messages by field."""
        wrong = {name: words for name in BOUNDS if (words := self._out_of_bounds(name))}
        if words := self._bad_url():
            wrong["webhook_url"] = words
        if wrong:
            raise ValidationError(wrong)

    def differences(self, subscription: Subscription) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if getattr(subscription, name) != value}

    def _out_of_bounds(self, name: str) -> str:
        least, most = BOUNDS[name]
        return "" if least <= getattr(self, name) <= most else f"Enter a number from {least} to {most}."

    def _bad_url(self) -> str:
        if not self.webhook_url:
            return ""
        if len(self.webhook_url) > URL_CHARS:
            return f"The URL is longer than {URL_CHARS} characters."
        try:
            validate_url(self.webhook_url)
        except ValidationError as problem:
            return str(problem.messages[0])
        return ""


def host_of(url: str) -> str:
    """The part of a webhook's URL that the audit log shows: the path may be a secret."""
    return urlsplit(url).hostname or ""


def new_secret() -> Secret:
    return Secret(SECRET_PREFIX + base64.b64encode(os.urandom(_SECRET_BYTES)).decode())


def sealed(subscription: Subscription, secret: Secret) -> dict[str, Any]:
    """The fields that store the sealed secret."""
    value, key_id = crypto.seal(secret.reveal(), table=TABLE, uid=subscription.uid, field=FIELD)
    return {"webhook_sealed": value, "webhook_key_id": key_id}


def opened(subscription: Subscription) -> Secret:
    """Raises crypto.SealError. Only in workers."""
    value = subscription.webhook_sealed or b""
    return crypto.open_sealed(value, key_id=subscription.webhook_key_id, table=TABLE, uid=subscription.uid, field=FIELD)
