"""Reloading a page that shows a secret once submits its form again. That must not create another secret."""

import hashlib
from typing import Final

from django.http import HttpRequest

_SESSION_KEY: Final = "forms_answered_with_a_secret"
_KEPT: Final = 50
ALREADY_USED: Final = "This was already created. Its secret was shown only once. If it is lost, create a new one."


def use_form(request: HttpRequest) -> bool:
    """Return False if this same form was already used because its page was reloaded.

    Each page masks the CSRF token differently, so no two forms contain the same text.
    """
    token = request.POST.get("csrfmiddlewaretoken", "")
    if not token:  # a script sent it as a header; there is no page to reload
        return True
    mark = hashlib.sha256(token.encode()).hexdigest()[:32]
    used = request.session.get(_SESSION_KEY, [])
    if mark in used:
        return False
    request.session[_SESSION_KEY] = [*used, mark][-_KEPT:]
    return True
