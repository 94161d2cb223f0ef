from django.db import models

from servers.models import Identity, Server
from sessions.enums import WireDirection, WireKind


class WireMessage(models.Model):
    """One JSON-RPC message or HTTP exchange of a session, with its secrets masked: a ring per session, numbered without
    gaps by the session's only owner. All those of one server are limited in total size and age."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="wire_messages", db_index=False)
    identity = models.ForeignKey(
        Identity, null=True, on_delete=models.CASCADE, related_name="+", db_index=False
    )  # null: the shared identity
    seq = models.BigIntegerField()
    position = models.BigIntegerField()  # bytes added to the ring since it began, including this row
    at = models.DateTimeField(db_index=True)
    connection = models.BigIntegerField()  # identifies the session's connection: its start in microseconds since 1970
    exchange = models.PositiveIntegerField(null=True)  # number of the HTTP exchange that carried it, in its connection
    transport = models.CharField(max_length=20)
    direction = models.CharField(max_length=10, choices=WireDirection)
    kind = models.CharField(max_length=16, choices=WireKind)
    method = models.CharField(max_length=200, blank=True)  # for an answer: its request's; for an exchange: the verb
    target = models.TextField(blank=True)  # name of the tool or prompt, URI of the resource; of an exchange: its URL
    rpc_id = models.CharField(max_length=200, blank=True)  # as JSON text: 1 and "1" differ
    call_uid = models.UUIDField(null=True)
    status = models.PositiveSmallIntegerField(null=True)  # HTTP
    fault = models.CharField(
        max_length=40, blank=True
    )  # code of a JSON-RPC error, "tool_error", or a core.errors.Fault
    detail = models.TextField(blank=True)  # the error's own words, or how many messages were not recorded
    duration_ms = models.FloatField(null=True)  # for an answer: since its request; for an exchange: until its head
    size = models.PositiveBigIntegerField(default=0)  # bytes on the wire
    headers = models.TextField(blank=True)  # JSON: {"sent": [[name, value]], "received": …}
    body = models.TextField(blank=True)  # JSON; its beginning if `cut`
    cut = models.BooleanField(default=False)
    # the body if payloads are encrypted: then `body` is empty, and `uid` says which row it is bound to
    sealed = models.BinaryField(null=True)
    key_id = models.CharField(max_length=40, blank=True)
    uid = models.UUIDField(null=True)

    class Meta:
        ordering = ["seq"]
        indexes = [  # each of these costs time in every message
            models.Index(fields=["server", "identity", "seq"], name="wire_of_session"),
            models.Index(fields=["identity"], name="wire_by_identity", condition=models.Q(identity__isnull=False)),
            models.Index(fields=["key_id"], name="wire_by_key", condition=models.Q(sealed__isnull=False)),
            models.Index(fields=["call_uid"], name="wire_by_call", condition=models.Q(call_uid__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.direction} {self.kind} {self.method}"
