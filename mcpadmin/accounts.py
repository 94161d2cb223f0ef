from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class ClosedSignup(DefaultAccountAdapter):
    """Accounts are made by an administrator; the first one by the set-up link of `manage.py up`."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False
