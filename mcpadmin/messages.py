"""One-time messages, shown on the page after a redirect. The cookie is named like our others: browsers share the
cookies of a host between its ports, and other programs built with Django call theirs `messages`."""

from django.conf import settings
from django.contrib.messages.storage.cookie import CookieStorage
from django.contrib.messages.storage.fallback import FallbackStorage
from django.contrib.messages.storage.session import SessionStorage


class OwnCookie(CookieStorage):
    cookie_name = settings.MESSAGES_COOKIE_NAME


class Messages(FallbackStorage):
    storage_classes = (OwnCookie, SessionStorage)
