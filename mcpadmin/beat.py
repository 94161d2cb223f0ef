"""`celery -A mcpadmin.beat beat`: the schedule alone. Beat sends names of tasks and runs none, so it loads no models."""

import os

from celery import Celery, signals

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcpadmin.settings")

from mcpadmin import diagnostics, task_context  # both read the settings
from mcpadmin.up import ready  # after the settings are named

app = Celery("mcpadmin", fixups=[])  # without Celery's own start of Django
app.config_from_object("mcpadmin.settings", namespace="CELERY")
task_context.connect()
diagnostics.install()
if ready.prepare():
    signals.beat_init.connect(ready.announce)
