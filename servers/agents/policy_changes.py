"""How people change a policy. Each change is an audit event and takes effect at once, in every web process."""

from functools import partial
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from servers import access, permissions
from servers.accounts.authority import Authority, managed
from servers.agents.policies import Owner, Rule
from servers.agents.tokens import MANAGE
from servers.audit.acts import Trail, audited
from servers.audit.record import Actor, ServerRef
from servers.bundles import changing
from servers.enums import AuditAction
from servers.models import AgentPolicy, AgentRule, AgentToken, Bundle, Server
from servers.signals import agent_policy_changed

RULES: Final = 200


def require(actor: Actor, user: Any, of: Owner) -> None:
    """The policy of an endpoint or bundle belongs to those who may change servers, a token's to its person and to those
    who may change the account of that person. Raises access.Denied (recorded)."""
    if isinstance(of, Server):
        permissions.require(user, actor, changing.PERMISSION, of)
    elif isinstance(of, Bundle):
        permissions.require(user, actor, changing.PERMISSION, subject=of.name)
    elif of.user_id != user.pk:
        with managed(actor, user, of.name):
            Authority.of(user).require_reach(of.user)


def may_change(user: Any, of: Owner) -> bool:
    if not isinstance(of, AgentToken):
        return access.may(user, changing.PERMISSION)
    return of.user_id == user.pk or (access.may(user, MANAGE) and Authority.of(user).reaches(of.user))


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
        raise ValidationError(f"There is already a rule for {rule.pattern}. Remove it first.") from problem


def remove_rule(actor: Actor, user: Any, of: Owner, rule: AgentRule) -> None:
    """Raises access.Denied (recorded)."""
    require(actor, user, of)
    with audited(actor) as trail:
        gone, _ = AgentRule.objects.filter(pk=rule.pk).delete()
        if gone:
            _note(trail, of, {"removed": _words(rule)})


def change(actor: Actor, user: Any, of: Owner, fields: dict[str, Any]) -> None:
    """Change the policy's own fields. Raises access.Denied (recorded)."""
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
    return AgentPolicy.objects.select_for_update().get_or_create(**columns(of))[0]


def columns(of: Owner) -> dict[str, Any]:
    """The owner's columns in the row of its policy."""
    if isinstance(of, Server):
        return {"server": of}
    return {"bundle": of} if isinstance(of, Bundle) else {"token": of}


def _note(trail: Trail, of: Owner, details: dict[str, Any]) -> None:
    if isinstance(of, Server):
        trail.note(AuditAction.AGENT_POLICY_CHANGE, ServerRef.of(of), of.name, details)
    elif isinstance(of, Bundle):
        trail.note(AuditAction.AGENT_POLICY_CHANGE, None, of.name, {"bundle": str(of.uid), **details})
    else:
        trail.note(AuditAction.AGENT_TOKEN_POLICY, None, of.name, {"token": str(of.uid), **details})
    transaction.on_commit(partial(agent_policy_changed.send_robust, sender=AgentPolicy), robust=True)
