from importlib import import_module

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions"
    label = "mcp_sessions"  # django.contrib.sessions uses the label "sessions"
    verbose_name = "MCP sessions"

    def ready(self) -> None:
        import_module("sessions.receivers")
        import_module("servers.audit.proof.rows").register(import_module("sessions.calls.proof").CallRows())
        has_sealed = import_module("servers.crypto").has_sealed
        has_sealed("mcp_sessions.Subscription", "webhook_sealed", "webhook_key_id")
        has_sealed("mcp_sessions.WireMessage")
        has_sealed("mcp_sessions.AgentRound")
