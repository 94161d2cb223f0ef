import shlex
import uuid
from typing import Any

from django.conf import settings
from django.db import models

from servers.enums import (
    ConnectionPolicy,
    Environment,
    EraChoice,
    IdentityKind,
    NetworkAccess,
    Recording,
    SignsInAs,
    TransportKind,
    ValueKind,
)


class Server(models.Model):
    """A registered MCP server. `version` rises with each save: the optimistic lock for concurrent edits."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    version = models.PositiveIntegerField(default=1)
    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    description = models.CharField(max_length=500, blank=True)
    notes = models.TextField(blank=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="owned_servers"
    )
    environment = models.CharField(max_length=20, choices=Environment, default=Environment.DEVELOPMENT)
    tags = models.JSONField(default=list, blank=True)

    transport = models.CharField(max_length=20, choices=TransportKind)
    era = models.CharField(max_length=10, choices=EraChoice, default=EraChoice.AUTO)
    command = models.CharField(max_length=1000, blank=True)
    arguments = models.JSONField(default=list, blank=True)
    working_directory = models.CharField(max_length=1000, blank=True)
    url = models.CharField(max_length=2000, blank=True)
    # What a stdio server may access besides its own folders, the system's programs and its own installation.
    readable_paths = models.JSONField(default=list, blank=True)  # ["/srv/data"]
    writable_paths = models.JSONField(default=list, blank=True)
    network_access = models.CharField(max_length=10, choices=NetworkAccess, default=NetworkAccess.PUBLIC)
    network_hosts = models.JSONField(default=list, blank=True)  # ["api.example.com", "10.0.0.5:5432"]
    roots = models.JSONField(default=list, blank=True)  # [{"uri": "file:///srv/data", "name": "Data"}]

    worker_label = models.CharField(max_length=60, blank=True)  # only workers with this label may hold the session
    answers_sampling = models.BooleanField(default=True)  # declared to the server; its requests go to the inbox
    answers_elicitation = models.BooleanField(default=True)

    recording = models.CharField(max_length=10, choices=Recording, default=Recording.FULL)
    signs_in_as = models.CharField(max_length=10, choices=SignsInAs, default=SignsInAs.SHARED)
    connection_policy = models.CharField(max_length=20, choices=ConnectionPolicy, default=ConnectionPolicy.ALWAYS_ON)
    idle_timeout_seconds = models.PositiveIntegerField(default=900)
    connect_timeout_seconds = models.PositiveIntegerField(default=30)
    request_timeout_seconds = models.PositiveIntegerField(default=60)
    total_timeout_seconds = models.PositiveIntegerField(default=1800)
    limits = models.JSONField(default=dict, blank=True)  # {"depth": 32}: only what differs from the instance's

    enabled = models.BooleanField(default=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    # who is responsible for its references: each launch resolves only what is granted to this person
    references_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    #: on a row that was read for a user (see access.identity_key): whose session and lists to use. The key of an
    #: identity, 0 if the user has none yet; None means the shared one
    seen_as: int | None = None

    class Meta:
        ordering = ["name", "id"]
        permissions = [
            ("manage_stdio", "May register commands that run on the workers"),
            ("call_tool", "May call tools"),
            ("answer_question", "May answer server requests"),
            ("manage_subscription", "May subscribe to resources"),
            ("view_payload", "May read arguments and results of calls"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def identity_filter(self) -> dict[str, Any]:
        """A filter that selects the rows (sessions, definitions, ...) of the identity in `seen_as`."""
        if self.seen_as is not None:
            return {"identity_id": self.seen_as}
        return {"identity_id": 0} if self.signs_in_as == SignsInAs.PERSONAL else {"identity__kind": IdentityKind.SHARED}

    @property
    def unencrypted(self) -> bool:
        """Whether anyone on the network path can read the traffic; the pages say so."""
        return self.transport != TransportKind.STDIO and self.url.lower().startswith(("http:", "ws:"))

    @property
    def endpoint(self) -> str:
        """The URL, or the command line as a shell reads it."""
        return self.url if self.transport != TransportKind.STDIO else shlex.join([self.command, *self.arguments])


class ServerValue(models.Model):
    """One header or environment variable. A secret is stored only in `sealed`, a plain value only in `plain`."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="values")
    kind = models.CharField(max_length=20, choices=ValueKind)
    name = models.CharField(max_length=200)
    secret = models.BooleanField(default=False)
    plain = models.TextField(blank=True)
    sealed = models.BinaryField(null=True)
    key_id = models.CharField(max_length=40, blank=True)
    fingerprint = models.CharField(max_length=20, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["server", "kind", "name"], name="value_once_a_server")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_needed(self) -> bool:
        """Whether this is a secret whose value has not been entered yet."""
        return self.secret and self.sealed is None

    @property
    def is_left_open(self) -> bool:
        """Whether this is a missing environment variable, which a credential can provide too."""
        return self.is_needed and self.kind == ValueKind.ENVIRONMENT
