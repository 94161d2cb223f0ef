from importlib import import_module

from celery.signals import worker_ready
from django.apps import AppConfig

from mcpadmin.up import ready


class McpadminConfig(AppConfig):
    name = "mcpadmin"
    verbose_name = "mcpadmin"

    def ready(self) -> None:
        # They read settings and models, which exist only now; celery and checks register themselves.
        import_module("mcpadmin.celery")
        import_module("mcpadmin.checks")
        import_module("mcpadmin.logging").configure()
        import_module("mcpadmin.task_context").connect()
        import_module("mcpadmin.diagnostics").install()
        if ready.close_pipes_to_children():
            worker_ready.connect(ready.announce)
