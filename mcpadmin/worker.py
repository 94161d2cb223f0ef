"""`celery -A mcpadmin.worker worker`: the app with the session host. Only workers import this module."""

import django

from mcpadmin.celery import app

django.setup()

# After Django's own start: they need models. All is loaded here, while `up` may still be preparing the database.
from mcpadmin import beat  # noqa: E402  # after Django's own start
from mcpadmin.up import ready  # noqa: E402  # after Django's own start
from sessions import tasks  # noqa: E402  # after Django's own start
from sessions.host.boot import HostStep  # noqa: E402  # after Django's own start

app.user_options["worker"].add(beat.OPTION)
app.steps["worker"] |= {HostStep, beat.BeatStep}
ready.wait_until_prepared()

__all__ = ["app", "tasks"]
