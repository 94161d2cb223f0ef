import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from servers.enums import OwnApproval, PolicyEffect, PolicyKind
from servers.models.agent_token import AgentToken
from servers.models.bundle import Bundle
from servers.models.server import Server


class AgentPolicy(models.Model):
    """What agents may do at the endpoint of a server or bundle, or with one token. Without a row, the fields' defaults
    apply."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    server = models.OneToOneField(Server, null=True, on_delete=models.CASCADE, related_name="agent_policy")
    bundle = models.OneToOneField(Bundle, null=True, on_delete=models.CASCADE, related_name="agent_policy")
    token = models.OneToOneField(AgentToken, null=True, on_delete=models.CASCADE, related_name="policy")
    otherwise = models.CharField(
        max_length=5, choices=PolicyEffect, default=PolicyEffect.ALLOW
    )  # where no rule matches
    # of endpoints only
    own_approval = models.CharField(max_length=20, choices=OwnApproval, default=OwnApproval.EXCEPT_DESTRUCTIVE)
    # of a server's own endpoint only
    trusts_annotations = models.BooleanField(default=False)  # also those that make a tool look harmless
    # of endpoints only: of a tool with equal arguments in a minute, before a person is asked; null: any number
    equal_calls = models.PositiveIntegerField(null=True)
    # of endpoints only: an equal call of which it is unknown what it did asks a person
    asks_to_repeat = models.BooleanField(default=False)
    # limits; null: those of the product
    requests_per_second = models.PositiveIntegerField(null=True)
    calls_in_flight = models.PositiveIntegerField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(server__isnull=False, bundle__isnull=True, token__isnull=True)
                | Q(server__isnull=True, bundle__isnull=False, token__isnull=True)
                | Q(server__isnull=True, bundle__isnull=True, token__isnull=False),
                name="agent_policy_of_one",
            )
        ]
        default_permissions = ()

    def __str__(self) -> str:
        return f"of {self.server or self.bundle or self.token}"


class AgentRule(models.Model):
    """Order does not matter: of the rules that match, the strictest counts."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    policy = models.ForeignKey(AgentPolicy, on_delete=models.CASCADE, related_name="rules")
    effect = models.CharField(max_length=5, choices=PolicyEffect)
    kind = models.CharField(max_length=8, choices=PolicyKind)
    pattern = models.CharField(max_length=300)  # of names or URIs, such as delete_* or file:///etc/*
    calls_per_minute = models.PositiveIntegerField(null=True)  # of each name or URI that matches; null: any number
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["kind", "pattern"]
        constraints = [models.UniqueConstraint(fields=["policy", "kind", "pattern"], name="agent_rule_once")]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.effect} {self.kind} {self.pattern}"
