"""What people can change in their own account: the profile, and how pages look to them."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from servers.accounts import links
from servers.models import Preferences


def change_profile(user: Any, name: str, email: str) -> bool:
    """Returns False if nothing changed. The audit log records it like every change of an account."""
    if (user.get_full_name(), user.email) == (name, email):
        return False
    new_address = user.email != email
    user.first_name, user.last_name, user.email = name, "", email
    with transaction.atomic():
        user.save(update_fields=["first_name", "last_name", "email"])
        if new_address:
            links.revoke_password_links(user)  # they were mailed to the old one
    return True


def preferences(user: Any) -> Preferences:
    """Without a query: mcpadmin.accounts.Backend reads them with the user."""
    try:
        found: Preferences = user.preferences
    except Preferences.DoesNotExist:
        return Preferences(user=user)
    return found


def change_preferences(user: Any, given: Mapping[str, Any]) -> Preferences:
    """Change only the given fields. Not in the audit log, because it concerns no one else."""
    known = {name: given[name] for name in ("time_zone", "utc", "theme") if name in given}
    row, _ = Preferences.objects.update_or_create(user_id=user.pk, defaults=known)
    return row
