from importlib import import_module

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate, pre_migrate


class ServersConfig(AppConfig):
    name = "servers"
    verbose_name = "Servers"

    def ready(self) -> None:
        import_module("servers.audit.accounts")
        import_module("servers.accounts.browser_sessions")
        import_module("servers.accounts.links")
        triggers = import_module("servers.audit.proof.triggers")
        pre_migrate.connect(triggers.before_migrations, sender=self, dispatch_uid="audit.triggers_before")
        # The last app that Django reports: `up` runs `migrate` again if the triggers are missing, and by then
        # everything else that is created after migrations exists, such as permissions.
        last = next(app for app in reversed([*apps.get_app_configs()]) if app.models_module is not None)
        post_migrate.connect(triggers.after_migrations, sender=last, dispatch_uid="audit.triggers_after")
        has_sealed = import_module("servers.crypto").has_sealed
        has_sealed("servers.ServerValue")
        has_sealed("servers.ServerDraft", expires="expires_at")
        has_sealed("servers.Credential")
        has_sealed("servers.Payload")
        has_sealed("servers.Unredacted")
        for part in ("value", "signing", "private_key"):
            has_sealed("servers.Sink", f"sealed_{part}", f"{part}_key_id")
        has_sealed("servers.ExportSchedule")
        for part in ("client", "pending", "url", "answer"):
            has_sealed("servers.ServerAuthorization", f"sealed_{part}", f"{part}_key_id", expires="expires_at")
