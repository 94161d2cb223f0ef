from importlib import import_module

from django.apps import AppConfig


class ServersConfig(AppConfig):
    name = "servers"
    verbose_name = "Servers"

    def ready(self) -> None:
        import_module("servers.audit.accounts")
