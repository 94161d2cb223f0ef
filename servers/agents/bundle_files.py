"""A bundle with its policy as a reviewable file: JSON in a stable order, without secrets and without database keys of
this installation."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from django.core.exceptions import ValidationError
from django.db import transaction
from django.forms import BooleanField, Form

from servers import access
from servers.agents import policy_changes
from servers.agents.policies import KIND_OF, Rule
from servers.agents.policy_forms import BundlePolicyForm, RuleForm
from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.bundles import changing, exposed, names, offers, overrides
from servers.bundles.changing import BundleInput, Membership, current_members
from servers.bundles.forms import FILE_CHARS
from servers.bundles.names import Target
from servers.bundles.overrides import Override
from servers.enums import AuditAction, BundleListing, DefinitionKind, PolicyEffect, PolicyKind
from servers.json import text as json_text
from servers.models import AgentPolicy, AgentRule, Bundle, BundleMember
from servers.patterns import matches
from servers.storable import storable_json

FORMAT: Final = "mcpadmin-bundle"
VERSION: Final = 1
_LISTS: Final = ("tools", "resources", "prompts")
_NAMED: Final = (DefinitionKind.TOOL, DefinitionKind.PROMPT)
#: kind and name of a definition, as the bundle exposes it
NewNames = Mapping[tuple[PolicyKind, str], str]


def written(bundle: Bundle) -> str:
    """Servers appear under their short names, members in their order."""
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
    if altered := list(_altered(bundle, list(row.rules.all()) if row is not None else [])):
        value["names"] = altered
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def export(actor: Actor, bundle: Bundle) -> str:
    with audited(actor) as trail:
        text = written(bundle)
        trail.note(AuditAction.BUNDLE_EXPORT, None, bundle.name, {"bundle": str(bundle.uid)})
    return text


def import_bundle(actor: Actor, user: Any, text: str) -> Bundle:
    """Import all of it or nothing. Raises access.Denied (recorded) and a ValidationError that says what is wrong."""
    value = _parsed(text)
    wanted, policy = _wanted(user, value), value.get("policy")
    targets = _targets(value, wanted.members)
    renamed = _renamed(targets)
    wanted = replace(wanted, pinned=[renamed.get((PolicyKind.TOOL, one), one) for one in wanted.pinned])
    if policy is None:
        return _created(actor, user, wanted, targets)
    rules = policy.get("rules") if isinstance(policy, dict) else None
    if not isinstance(rules, list):
        raise ValidationError("policy must be an object with a list of rules.")
    if len(rules) > policy_changes.RULES:
        raise ValidationError(f"A policy has at most {policy_changes.RULES} rules.")
    settings = _checked(BundlePolicyForm, {name: found for name, found in policy.items() if name != "rules"}, "policy")
    forms = [_checked(RuleForm, rule, f"rule {number} of the policy") for number, rule in enumerate(rules, 1)]
    read = [_under_its_name(form.rule(), renamed) for form in forms]
    _check_rules(read, renamed)
    with transaction.atomic():
        bundle = _created(actor, user, wanted, targets)
        policy_changes.change(actor, user, bundle, settings.cleaned_data)
        for rule in read:
            policy_changes.add_rule(actor, user, bundle, rule)
    return bundle


# --- names that differ between installations --------------------------------------------------------------------------
#: what the names of a kind mean, with the name in the file and the alias of the server
Targets = Mapping[DefinitionKind, Mapping[Target, tuple[str, str]]]


def _names(bundle: Bundle, kind: DefinitionKind, members: Mapping[str, BundleMember]) -> dict[Target, str]:
    """Includes definitions that are absent now: a rule about them must apply to them elsewhere, too."""
    return {
        target: name
        for uid, member in members.items()
        for target, name in exposed.under_alias(bundle.pk, kind, member.alias).items()
        if target[0] == uid
    }


def _altered(bundle: Bundle, rules: Sequence[AgentRule]) -> Iterator[dict[str, str]]:
    """Names whose mark depends on the server's key in this installation, as far as the bundle's rules or `pinned` mean
    them: the same tool has another one elsewhere. With each its twin, so that both are given the same way there."""
    members = {str(row.server.uid): row for row in current_members(bundle)}
    for kind in _NAMED:
        groups: dict[str, list[tuple[bool, str, Target]]] = {}
        for target, name in _names(bundle, kind, members).items():
            if target[0] in members:
                plain = names.plain(members[target[0]].alias, target[1])
                groups.setdefault(names.skeleton(plain or name), []).append((name != plain, name, target))
        for _, group in sorted(groups.items()):
            if any(is_altered for is_altered, _, _ in group) and any(
                any(rule.kind == KIND_OF[kind] and matches(rule.pattern, name) for rule in rules)
                or (kind == DefinitionKind.TOOL and offers.offers(bundle.pinned, name))
                for _, name, _ in group
            ):
                for _, name, (uid, original) in sorted(group):
                    server = members[uid].server.slug
                    yield {"kind": kind.value, "name": name, "server": server, "original": original}


def _targets(value: dict[str, Any], members: Collection[Membership]) -> Targets:
    found: dict[DefinitionKind, dict[Target, tuple[str, str]]] = {kind: {} for kind in _NAMED}
    by_slug = {one.server.slug: one for one in members if names.ALIAS.match(one.alias)}
    listed = value.get("names", [])
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValidationError("names must be a list of objects.")
    for one in listed:
        if one.get("kind") not in found:
            raise ValidationError(f"names: kind must be one of {', '.join(_NAMED)}.")
        name, original, member = _text(one, "name"), _text(one, "original"), by_slug.get(_text(one, "server"))
        if member is not None:
            found[one["kind"]][str(member.server.uid), original] = name, member.alias
    return found


def _renamed(targets: Targets) -> NewNames:
    return {
        (KIND_OF[kind], meant[target][0]): name
        for kind, meant in targets.items()
        for target, name in exposed.preview(None, kind, {one: alias for one, (_, alias) in meant.items()}).items()
    }


def _created(actor: Actor, user: Any, wanted: BundleInput, targets: Targets) -> Bundle:
    """Create it with the names that its rules refer to: which of two twins is listed first there is arbitrary."""
    with transaction.atomic():
        bundle = changing.create(actor, user, wanted)
        for kind, meant in targets.items():
            exposed.assign(bundle.pk, kind, {target: alias for target, (_, alias) in meant.items()})
    return bundle


def _under_its_name(rule: Rule, renamed: NewNames) -> Rule:
    return replace(rule, pattern=renamed.get((rule.kind, rule.pattern), rule.pattern))


def _check_rules(rules: Sequence[Rule], renamed: NewNames) -> None:
    """What a pattern denied or asked about there must not be allowed here."""
    for rule in rules:
        for (kind, before), now in renamed.items():
            strict = (rule.effect, PolicyEffect.DENY)
            if rule.effect is PolicyEffect.ALLOW or not rule.matches(kind, before):
                continue
            if not any(other.effect in strict and other.matches(kind, now) for other in rules):
                raise ValidationError(
                    f"The rule “{rule.effect.label} {rule.pattern}” means {before}, which is {now} here, and would not match "
                    "it. Change its pattern so that it matches both, or add a rule for the name here."
                )


F = TypeVar("F", bound=Form)


def _fields(row: AgentPolicy | AgentRule, form: type[Form]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in form.base_fields}


def _checked(form: type[F], value: Any, place: str) -> F:
    """Validated by the form that people use: a policy is not imported in part, so all fields must be known."""
    if not isinstance(value, dict):
        raise ValidationError(f"{place} must be an object.")
    for name, found in value.items():
        if name not in form.base_fields:
            raise ValidationError(f"{place}: {name[:100]} is unknown.")
        if isinstance(form.base_fields[name], BooleanField):
            if not isinstance(found, bool):
                raise ValidationError(f"{place}: {name} must be true or false.")
        elif not isinstance(found, str | int | None) or isinstance(found, bool):
            raise ValidationError(f"{place}: {name} must be a string or an integer.")
    filled = form(value)
    for name, problems in filled.errors.items():
        raise ValidationError(f"{place}: {name}: {problems[0]}")
    return filled


def _parsed(text: str) -> dict[str, Any]:
    if len(text) > FILE_CHARS:
        raise ValidationError(f"The file has more than {FILE_CHARS:,} characters.")
    try:
        value: Any = json_text.loads(text)
    except json_text.JsonProblem as problem:
        raise ValidationError(f"This is not JSON. {problem}") from problem
    if not isinstance(value, dict) or value.get("format") != FORMAT or value.get("version") != VERSION:
        raise ValidationError(f"This is not an exported bundle: format must be {FORMAT} and version {VERSION}.")
    if storable_json(value) != value:
        raise ValidationError("The file contains a NUL character or an unpaired surrogate, which cannot be stored.")
    return value


def _wanted(user: Any, value: dict[str, Any]) -> BundleInput:
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
    return BundleInput(
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
