"""Browsers that a user has signed in with before, so that a stranger's wrong passwords do not lock the user out there.

After a sign-in the browser keeps a signed cookie. Failed sign-ins that carry it for the same user name are counted for
this browser alone; all others are counted for the name, whatever their address. So a stranger who exhausts the count of
a name stops other strangers, and a thief of the cookie has no more attempts than before.
Source: OWASP, *Slow Down Online Guessing Attacks with Device Cookies*.
"""

import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth.signals import user_logged_in
from django.core import signing
from django.dispatch import receiver
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.crypto import salted_hmac

SALT = "mcpadmin.known-browser"
MAX_AGE_SECONDS = 365 * 24 * 3600
#: users remembered per browser; the oldest is forgotten
MOST = 5
_SIGNED_IN = "_signed_in_name"


def key(request: HttpRequest, username: str) -> str:
    """The key for counting failed sign-ins of this browser as this user; empty for an unknown browser."""
    return _kept(request).get(_digest(username), "")


@receiver(user_logged_in, dispatch_uid="mcpadmin.known_browser")
def _note(sender: Any, user: Any, request: HttpRequest | None = None, **_: Any) -> None:
    if request is not None:
        setattr(request, _SIGNED_IN, user.get_username())


def remember(request: HttpRequest, response: HttpResponseBase) -> None:
    """Set the cookie on the answer to a sign-in."""
    name = getattr(request, _SIGNED_IN, None)
    if name is None:
        return
    kept = _kept(request)
    kept[_digest(name)] = kept.pop(_digest(name), "") or secrets.token_urlsafe(16)
    newest = dict(list(kept.items())[-MOST:])
    response.set_cookie(
        settings.KNOWN_BROWSER_COOKIE_NAME,
        signing.dumps(newest, salt=SALT),
        max_age=MAX_AGE_SECONDS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def _kept(request: HttpRequest) -> dict[str, str]:
    try:
        kept = signing.loads(
            request.COOKIES.get(settings.KNOWN_BROWSER_COOKIE_NAME, ""), salt=SALT, max_age=MAX_AGE_SECONDS
        )
    except signing.BadSignature:
        return {}
    return dict(kept)


def _digest(username: str) -> str:
    """The cookie reveals no user names."""
    return salted_hmac(SALT, username.lower()).hexdigest()[:32]
