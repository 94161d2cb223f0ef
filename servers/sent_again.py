"""Reloading a page that shows a secret once sends its form again. That must not create another secret."""

import hashlib
from typing import Final

from django.http import HttpRequest

_SESSION_KEY: Final = "forms_answered_with_a_secret"
_KEPT: Final = 50
NOTICE: Final = "This was created before. Its secret was shown only once. If it is lost, create a new one."


def sent_again(request: HttpRequest) -> bool:
    """Whether this very form was answered with a secret before. From now on it counts as answered.

    Each page masks the CSRF token anew, so two forms never carry the same text, unless one of them is a form sent again.
    """
    token = request.POST.get("csrfmiddlewaretoken", "")
    if not token:  # a script sent it as a header; there is no page to reload
        return False
    mark = hashlib.sha256(token.encode()).hexdigest()[:32]
    answered = request.session.get(_SESSION_KEY, [])
    if mark in answered:
        return True
    request.session[_SESSION_KEY] = [*answered, mark][-_KEPT:]
    return False
