"""The Celery app. It does not import the session host, so that web processes load no transports."""

import os

from celery import Celery

from mcpadmin import broker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcpadmin.settings")

broker.register()
app = Celery("mcpadmin")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
