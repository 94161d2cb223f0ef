"""A bundle with its policy as a file that people review: JSON in a stable order, without secrets and without keys of this
installation."""

import json
from typing import Any, Final, TypeVar

from django.core.exceptions import ValidationError
from django.db import transaction
from django.forms import Form

from servers import access
from servers.agents import policy_changes
from servers.agents.policy_forms import BundlePolicyForm, RuleForm
from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.bundles import changing, overrides
from servers.bundles.changing import Membership, Wanted, current_members
from servers.bundles.forms import FILE_CHARS
from servers.bundles.overrides import Override
from servers.enums import AuditAction, BundleListing
from servers.models import AgentPolicy, AgentRule, Bundle
from servers.schemas import jsontext
from servers.storable import storable_json

FORMAT: Final = "mcpadmin-bundle"
VERSION: Final = 1
_LISTS: Final = ("tools", "resources", "prompts")


def written(bundle: Bundle) -> str:
    """Servers are named by their short names, members stand in their order."""
    value = {
        "format": FORMAT,
        "version": VERSION,
        "name": bundle.name,
        "short_name": bundle.slug,
        "instructions": bundle.instructions,
        "listing": bundle.listing,
        "pinned": bundle.pinned,
        "members": [
            {
                "server": row.server.slug,
                "alias": row.alias,
                **{name: getattr(row, name) for name in _LISTS},
                **({"overrides": row.overrides} if row.overrides else {}),
            }
            for row in current_members(bundle)
        ],
    }
    row = AgentPolicy.objects.filter(bundle=bundle).prefetch_related("rules").first()
    if row is not None:
        value["policy"] = _fields(row, BundlePolicyForm) | {
            "rules": [_fields(rule, RuleForm) for rule in row.rules.all()]
        }
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def export(actor: Actor, bundle: Bundle) -> str:
    with audited(actor) as trail:
        text = written(bundle)
        trail.note(AuditAction.BUNDLE_EXPORT, None, bundle.name, {"bundle": str(bundle.uid)})
    return text


def bring(actor: Actor, user: Any, text: str) -> Bundle:
    """All of it or nothing. Raises access.Denied (recorded) and ValidationError that names what is wrong."""
    value = _parsed(text)
    wanted, policy = _wanted(user, value), value.get("policy")
    if policy is None:
        return changing.create(actor, user, wanted)
    rules = policy.get("rules") if isinstance(policy, dict) else None
    if not isinstance(rules, list):
        raise ValidationError("policy must be an object with a list of rules.")
    settings = _checked(BundlePolicyForm, {name: found for name, found in policy.items() if name != "rules"}, "policy")
    forms = [_checked(RuleForm, rule, f"rule {number} of the policy") for number, rule in enumerate(rules, 1)]
    with transaction.atomic():
        bundle = changing.create(actor, user, wanted)
        policy_changes.change(actor, user, bundle, settings.cleaned_data)
        for form in forms:
            policy_changes.add_rule(actor, user, bundle, form.rule())
    return bundle


F = TypeVar("F", bound=Form)


def _fields(row: AgentPolicy | AgentRule, form: type[Form]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in form.base_fields}


def _checked(form: type[F], value: Any, place: str) -> F:
    """By the form in which people say the same: a policy is not imported in part, so all fields must be known."""
    if not isinstance(value, dict):
        raise ValidationError(f"{place} must be an object.")
    for name, found in value.items():
        if name not in form.base_fields:
            raise ValidationError(f"{place}: {name[:100]} is unknown.")
        if not isinstance(found, str | int | None) or isinstance(found, bool):
            raise ValidationError(f"{place}: {name} must be a string or an integer.")
    filled = form(value)
    for name, problems in filled.errors.items():
        raise ValidationError(f"{place}: {name}: {problems[0]}")
    return filled


def _parsed(text: str) -> dict[str, Any]:
    if len(text) > FILE_CHARS:
        raise ValidationError(f"The file has more than {FILE_CHARS:,} characters.")
    try:
        value: Any = jsontext.loads(text)
    except jsontext.JsonProblem as problem:
        raise ValidationError(f"This is not JSON. {problem}") from problem
    if not isinstance(value, dict) or value.get("format") != FORMAT or value.get("version") != VERSION:
        raise ValidationError(f"This is not an exported bundle: format must be {FORMAT} and version {VERSION}.")
    if storable_json(value) != value:
        raise ValidationError("The file contains a NUL character or half of a surrogate pair, which cannot be stored.")
    return value


def _wanted(user: Any, value: dict[str, Any]) -> Wanted:
    members = value.get("members")
    if not isinstance(members, list) or not all(isinstance(one, dict) for one in members):
        raise ValidationError("members must be a list of objects.")
    slugs = [str(one.get("server")) for one in members]
    known = {row.slug: row for row in access.visible_servers(user).filter(slug__in=slugs, archived_at=None)}
    if missing := sorted(set(slugs) - known.keys()):
        raise ValidationError(
            f"These servers are not registered here: {', '.join(missing)[:500]}. Register them first."
        )
    listing = value.get("listing", BundleListing.ALL)
    if listing not in BundleListing.values:
        raise ValidationError(f"listing must be one of {', '.join(BundleListing.values)}.")
    return Wanted(
        _text(value, "name")[:120],
        [
            Membership(
                known[slug],
                _text(one, "alias"),
                **{name: _patterns(one, name, ["*"]) for name in _LISTS},
                overrides=_overrides(one),
            )
            for slug, one in zip(slugs, members, strict=True)
        ],
        _text(value, "short_name"),
        _text(value, "instructions"),
        listing,
        _patterns(value, "pinned", []),
    )


def _overrides(value: dict[str, Any]) -> dict[str, Override]:
    found = value.get("overrides", {})
    if not isinstance(found, dict):
        raise ValidationError("overrides must be an object that maps tool names to their overrides.")
    known = {tool: overrides.stored(found, tool) for tool in found}
    if wrong := [tool for tool, one in known.items() if one.value() != found[tool]]:
        raise ValidationError(
            f"overrides of {wrong[0][:100]}: use description, a string, and hidden, a sorted list of strings."
        )
    return known


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name, "")
    if not isinstance(found, str):
        raise ValidationError(f"{name} must be a string.")
    return found


def _patterns(value: dict[str, Any], name: str, default: list[str]) -> list[str]:
    found = value.get(name, default)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValidationError(f"{name} must be a list of strings.")
    return list(found)
