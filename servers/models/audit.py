from django.db import models

from servers.enums import ActionSource, AuditAction, AuditOutcome

#: steps of calls, which are three of four events: the explorer shows them as the timeline of their call
CALL_STEPS = tuple(action.value for action in AuditAction if action.value.startswith("call:"))
_NO_STEP = ~models.Q(action__in=CALL_STEPS)


class AuditHead(models.Model):
    """The head of the only chain, locked by the last statements of each transaction that appends."""

    chain = models.PositiveSmallIntegerField(primary_key=True)
    seq = models.BigIntegerField(default=0)
    hash = models.CharField(max_length=64, default="")

    def __str__(self) -> str:
        return f"{self.chain}:{self.seq}"


class AuditEvent(models.Model):
    """One link. Only `body` (canonical JSON text, RFC 8785) is hashed; the other columns are projections of it."""

    seq = models.BigIntegerField(primary_key=True)
    hash = models.CharField(max_length=64)
    body = models.TextField()

    at = models.DateTimeField(db_index=True)
    action = models.CharField(max_length=60, choices=AuditAction)
    outcome = models.CharField(max_length=20, choices=AuditOutcome)
    actor_id = models.BigIntegerField(null=True)
    actor_name = models.CharField(max_length=150, blank=True)
    server_uid = models.UUIDField(null=True)
    server_name = models.CharField(max_length=120, blank=True)
    identity_name = models.CharField(max_length=120, blank=True)
    subject = models.CharField(max_length=300, blank=True)  # tool name, user name, ... whatever the action is about
    call_uid = models.UUIDField(null=True)
    ip = models.CharField(max_length=45, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    # null: of body version 1. A column that may be null is added to a table of millions of rows at once.
    way = models.CharField(max_length=10, choices=ActionSource, null=True)  # noqa: DJ001  # as above

    class Meta:
        ordering = ["-seq"]
        permissions = [("verify_chain", "May verify the audit chain")]
        indexes = [
            models.Index(fields=["action", "-seq"], name="audit_by_action"),
            # Every index costs each call three times, so these are without the steps of calls.
            models.Index(fields=["-seq"], name="audit_events", condition=_NO_STEP),
            # with outcome and way, so that a search by them too compares thousands of events in the index alone
            models.Index(
                fields=["server_uid", "-seq", "outcome", "way"], name="audit_events_by_server", condition=_NO_STEP
            ),
            models.Index(
                fields=["actor_name", "-seq", "outcome", "way"], name="audit_events_by_actor", condition=_NO_STEP
            ),
            models.Index(fields=["outcome", "-seq"], name="audit_events_by_outcome", condition=_NO_STEP),
            # with the number: PostgreSQL otherwise prefers a walk along the primary key to a sort
            models.Index(fields=["call_uid", "seq"], name="audit_by_call"),
        ]

    def __str__(self) -> str:
        return f"#{self.seq} {self.action}"
