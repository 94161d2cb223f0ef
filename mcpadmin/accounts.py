from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.signals import user_login_failed
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe


class ClosedSignup(DefaultAccountAdapter):
    """Accounts are made by an administrator; the first one by the set-up link of `manage.py up`."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """A try that is refused unlooked at, after too many, is a failed sign-in too: the audit log has each of them."""
        try:
            super().pre_authenticate(request, **credentials)
        except ValidationError:
            user_login_failed.send(__name__, credentials=credentials, request=request, reason="throttled")
            raise


@login_not_required
@require_safe
def forgotten_password(request: HttpRequest) -> HttpResponse:
    """This product sends no mail, so nothing may promise one: says who can set a new password, and how."""
    return render(request, "account/forgotten_password.html")
