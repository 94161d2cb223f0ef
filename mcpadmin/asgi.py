import os
from importlib import import_module
from typing import Any

from mcpadmin import hardening

hardening.harden()  # before anything reads a setting or opens a file

from channels.auth import AuthMiddlewareStack  # noqa: E402  # as above
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402  # as above
from django.conf import settings  # noqa: E402  # as above

from mcpadmin import collector  # noqa: E402  # as above
from mcpadmin.up import ready  # noqa: E402  # as above

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcpadmin.settings")
collector.pause()
ready.start_django()

# After Django's own start: both read models and settings.
from mcpadmin.agents import WithAgents  # noqa: E402  # after Django's own start
from mcpadmin.origin import SameOriginOnly  # noqa: E402  # after Django's own start
from mcpadmin.up import ended_worker  # noqa: E402  # after Django's own start
from mcpadmin.web.handler import Handler  # noqa: E402  # after Django's own start
from servers import keyring  # noqa: E402  # after Django's own start
from sessions.agents.asgi import agents_application  # noqa: E402  # after Django's own start
from sessions.routing import websocket_urlpatterns  # noqa: E402  # after Django's own start

keyring.keep_renewed()
import_module(settings.ROOT_URLCONF)  # every page, while `up` may still be preparing the database and the static files
ready.wait_until_prepared()
django_application: Any = Handler()  # its middleware lists the static files
application = ProtocolTypeRouter(
    {
        "http": WithAgents(agents_application, django_application),
        "websocket": SameOriginOnly(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
collector.settle()
ready.announce_when_serving(application)
ready.on_ended_worker(ended_worker.record)
