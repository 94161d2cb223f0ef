"""Puts a text of the corpus into every text field of every row that a person, an agent or a server can have filled. Runs
in the product's shell; the test reads the plan.

A field of a model is written as it is (a text), written in the shape that SHAPES gives it (JSON), or named in KEPT with
the reason. `unplanned` finds those that nobody thought of.
"""

from collections.abc import Callable, Iterator
from typing import Any

from django.apps import apps
from django.db import models
from django.db.models import Q

from tests.e2e.hostile import corpus

APPS = ("servers", "mcp_sessions", "auth", "usersessions")
FIRST = len(corpus.SERVER_FIELDS)
Text = Callable[..., str]

KEPT_FOR = {
    "an identifier or a digest that the product makes": """
        AccountLink.digest AgentToken.public_id AgentToken.digest AgentToken.resource AuditHead.hash
        BrowserReport.digest ExposedName.exposed ExposedName.skeleton ExposedName.digest Definition.digest
        Definition.approved_digest DefinitionVersion.digest Credential.key_id Credential.fingerprint
        ServerDraft.key_id ExportSchedule.key_id Export.digest Sink.value_key_id Sink.signing_key_id
        Sink.private_key_key_id Sink.cursor_hash Icon.digest OAuthClient.digest OAuthCode.digest
        OAuthCode.challenge OAuthToken.digest Payload.digest Payload.key_id Unredacted.key_id
        Checkpoint.hash Checkpoint.key_id ServerValue.key_id ServerValue.fingerprint
        ServerAuthorization.browser ServerAuthorization.state_digest ServerAuthorization.client_key_id
        ServerAuthorization.pending_key_id ServerAuthorization.url_key_id ServerAuthorization.answer_key_id
        AgentSession.key AgentCall.same AgentRound.key_id Approval.same Call.definition_digest
        CallRollup.cell SavedCall.definition_digest SavedCall.source Subscription.webhook_key_id
        ResourceVersion.digest WireMessage.key_id Worker.node Worker.machine Worker.process_started
        UserSession.session_key User.password Permission.codename
    """,
    "its form or its parser accepts no such text": """
        Server.slug Bundle.slug BundleMember.alias Preferences.time_zone AgentToken.addresses
        AgentToken.last_address AgentToken.scopes Credential.scheme Credential.host
        ServerAuthorization.issuer User.username OAuthCode.redirect_uri Server.limits RedactionRule.path
        SavedView.columns AgentSession.revision AgentSession.log_level AgentCall.log_level
        McpSession.log_level LogLine.level Icon.mime Instance.place Instance.found
    """,
    "one of the product's own words": """
        ServerDraft.fault McpSession.fault McpSession.fault_step McpSession.era McpSession.revision
        McpSession.transport Call.fault Call.method ConnectionEvent.fault ConnectionEvent.step
        ConnectionEvent.title Question.method Question.origin Subscription.read_fault WireMessage.fault
        WireMessage.transport ServerTask.status SavedCall.method CallRollup.method CallRollup.way
        Worker.confinement IndexCursor.name Permission.name BackgroundJob.result McpSession.remembered
        McpSession.process McpSession.catalog_counts McpSession.catalog_cuts McpSession.client_capabilities
        AgentSession.capabilities AgentCall.capabilities Worker.labels
    """,
    "filled by the scripted server, or by the seed: these have the shape of a message": """
        AuditEvent.hash AuditEvent.body AuditEvent.actor_name AuditEvent.server_name
        AuditEvent.identity_name AuditEvent.subject AuditEvent.ip AuditEvent.request_id Definition.key
        Definition.title Definition.description Definition.body DefinitionVersion.body Payload.text
        WireMessage.headers WireMessage.body PinnedPackage.lock PinnedPackage.tools ServerDraft.steps
        ServerDraft.report BundleMember.overrides BundleMember.tools BundleMember.resources
        BundleMember.prompts Credential.details Identity.challenge AgentCall.request_id Call.target
        Call.preview
    """,
    "copied from calls; pages count the newest ones in the same way": """
        CallRollup.server_name CallRollup.target CallRollup.user_name
    """,
    "never shown": """
        Checkpoint.note Sink.ca Sink.certificate UserSession.data AgentFollow.uri
        AgentAttachment.request_id AgentAttachment.key
    """,
}
KEPT = {name: reason for reason, names in KEPT_FOR.items() for name in names.split()}
#: of JSON: what is stored, made from the texts of the row
SHAPES: dict[str, Callable[[Text], Any]] = {
    "AgentToken.tools": lambda t: [t(), t(1)],
    "Bundle.pinned": lambda t: [t()],
    "DefinitionVersion.reasons": lambda t: [t(), t(1)],
    "OAuthClient.redirect_uris": lambda t: [t(), t(1)],
    "Server.tags": lambda t: [t(0, 60), t(1, 60), t(2, 60)],
    "Server.arguments": lambda t: [t(), t(1), t(2)],
    "Server.readable_paths": lambda t: [t()],
    "Server.writable_paths": lambda t: [t()],
    "Server.network_hosts": lambda t: [t(), t(1)],
    "Server.roots": lambda t: [{"uri": f"file:///{t()}", "name": t(1)}],  # the form accepts no other scheme
    "McpSession.server_info": lambda t: {"name": t(), "title": t(1), "version": t(2), "websiteUrl": t(3)},
    "McpSession.server_capabilities": lambda t: {
        "tools": {},
        "resources": {},
        "prompts": {},
        "experimental": {t(): {}},
    },
    "McpSession.catalog_warnings": lambda t: [t(), t(1)],
    "Call.error_data": lambda t: '{"a": "' + t().translate({34: None, 92: None, 9: None, 10: None, 13: None}) + '"}',
}
#: rows that the product itself still needs as they are
SPARED: dict[str, Q] = {
    "OAuthClient": Q(client_id="pictured"),
    "User": Q(username="ada"),
    "Worker": Q(),
}
#: of a server that a worker is connected to, only what it does not use
OF_LIVE = {"name", "description", "notes", "tags"}


def text_fields() -> Iterator[tuple[str, "models.Field[Any, Any]"]]:
    for app in APPS:
        for model in apps.get_app_config(app).get_models():
            for field in model._meta.concrete_fields:
                if isinstance(field, models.CharField | models.TextField | models.JSONField) and not field.choices:
                    yield f"{model.__name__}.{field.name}", field


def plan() -> dict[str, int]:
    """The number of each field that is written."""
    names = sorted(name for name, _ in text_fields() if name not in KEPT)
    return {name: FIRST + at for at, name in enumerate(names)}


def unplanned() -> list[str]:
    """JSON without a shape, and names in the lists above that no model has."""
    fields = dict(text_fields())
    shapeless = [name for name, field in fields.items() if isinstance(field, models.JSONField)]
    return sorted({*shapeless} - KEPT.keys() - SHAPES.keys()) + sorted((KEPT.keys() | SHAPES.keys()) - fields.keys())


def poison(live: str) -> dict[str, int]:
    """Returns the number of rows of each field. `live`: the short name of the server that a worker is connected to."""
    found = {}
    for model in (model for app in APPS for model in apps.get_app_config(app).get_models()):
        names = {name.partition(".")[2]: at for name, at in plan().items() if name.startswith(f"{model.__name__}.")}
        if not names:
            continue
        spared = SPARED.get(model.__name__)
        rows = model._base_manager.order_by("pk")
        count = 0
        for at, row in enumerate(rows.exclude(spared) if spared else rows):
            wanted = names
            if live and _of_live(row, live):
                wanted = {
                    name: number for name, number in names.items() if model.__name__ == "Server" and name in OF_LIVE
                }
            values = {name: _value(row, name, number, at) for name, number in wanted.items()}
            values = {name: value for name, value in values.items() if value is not None}
            if values:
                model._base_manager.filter(pk=row.pk).update(**values)
                count += 1
        found |= {f"{model.__name__}.{name}": count for name in names}
    return found


def _of_live(row: Any, live: str) -> bool:
    server = row if type(row).__name__ == "Server" else getattr(row, "server", None)
    return getattr(server, "slug", "") == live


def _value(row: Any, name: str, number: int, at: int) -> Any:
    field = row._meta.get_field(name)
    if field.unique and getattr(row, name) is None:
        return None

    def text(more: int = 0, most: int | None = field.max_length) -> str:
        return corpus.text(number, at + more, most)

    shape = SHAPES.get(f"{type(row).__name__}.{name}")
    if shape is not None:
        return shape(text)
    room = field.max_length is None or field.max_length > len(corpus.whole(number))
    return corpus.whole(number) if room and at % 3 == 2 and not field.unique else text()
