"""How people change a policy. Each change is an audit event and holds at once, in every web process."""

from functools import partial
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from servers import access, rights
from servers.agents.policies import Rule
from servers.agents.tokens import MANAGE
from servers.audit.acts import Trail, audited
from servers.audit.record import Actor, ServerRef
from servers.enums import AuditAction
from servers.models import AgentPolicy, AgentRule, AgentToken, Server
from servers.signals import agent_policy_changed

RULES: Final = 200
Owner = Server | AgentToken


def require(actor: Actor, user: Any, of: Owner) -> None:
    """An endpoint's policy belongs to those who may change the server, a token's to its person. Raises access.Denied
    (recorded)."""
    if isinstance(of, Server):
        rights.require(user, actor, "change_server", of)
    elif of.user_id != user.pk:
        rights.require(user, actor, MANAGE, subject=of.name)


def may_change(user: Any, of: Owner) -> bool:
    if isinstance(of, Server):
        return access.may(user, "change")
    return of.user_id == user.pk or access.may(user, MANAGE)


def add_rule(actor: Actor, user: Any, of: Owner, rule: Rule) -> None:
    """Raises access.Denied (recorded) and ValidationError."""
    require(actor, user, of)
    try:
        with audited(actor) as trail:
            policy = _policy(of)
            if policy.rules.count() >= RULES:
                raise ValidationError(f"A policy has at most {RULES} rules. Replace some with one that has a pattern.")
            AgentRule.objects.create(policy=policy, **vars(rule), created_by=actor.name[:150])
            _note(trail, of, {"added": _words(rule)})
    except IntegrityError as problem:
        raise ValidationError(f"There is a rule for {rule.pattern} already. Remove it first.") from problem


def remove_rule(actor: Actor, user: Any, of: Owner, rule: AgentRule) -> None:
    """Raises access.Denied (recorded)."""
    require(actor, user, of)
    with audited(actor) as trail:
        gone, _ = AgentRule.objects.filter(pk=rule.pk).delete()
        if gone:
            _note(trail, of, {"removed": _words(rule)})


def change(actor: Actor, user: Any, of: Owner, fields: dict[str, Any]) -> None:
    """Of the policy's own fields. Raises access.Denied (recorded)."""
    require(actor, user, of)
    with audited(actor) as trail:
        policy = _policy(of)
        before = {name: getattr(policy, name) for name in fields}
        changed = {name: value for name, value in fields.items() if before[name] != value}
        if not changed:
            return
        AgentPolicy.objects.filter(pk=policy.pk).update(**changed)
        details = {name: f"{_word(before[name])} → {_word(value)}" for name, value in changed.items()}
        _note(trail, of, details)


def _words(rule: Rule | AgentRule) -> str:
    often = f", {rule.calls_per_minute} a minute" if rule.calls_per_minute else ""
    return f"{rule.effect} {rule.kind} {rule.pattern}{often}"


def _word(value: Any) -> str:
    return "default" if value is None else str(value)


def _policy(of: Owner) -> AgentPolicy:
    whose = {"server": of} if isinstance(of, Server) else {"token": of}
    return AgentPolicy.objects.select_for_update().get_or_create(**whose)[0]


def _note(trail: Trail, of: Owner, details: dict[str, Any]) -> None:
    if isinstance(of, Server):
        trail.note(AuditAction.AGENT_POLICY_CHANGE, ServerRef.of(of), of.name, details)
    else:
        trail.note(AuditAction.AGENT_TOKEN_POLICY, None, of.name, {"token": str(of.uid), **details})
    transaction.on_commit(partial(agent_policy_changed.send_robust, sender=AgentPolicy), robust=True)
