"""The policy of a bundle as a part of its exported file: an import must not open what the original closes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.core.exceptions import ValidationError

from servers.models import AgentPolicy, AgentRule, Bundle

RULES: Final = 200
_FIELDS: Final = ("otherwise", "own_approval", "equal_calls", "requests_per_second", "calls_in_flight")
_OF_A_RULE: Final = ("effect", "kind", "pattern", "calls_per_minute")


@dataclass(frozen=True)
class BundlePolicy:
    """Values of the columns of AgentPolicy, and of AgentRule for each rule."""

    fields: Mapping[str, Any]
    rules: list[dict[str, Any]]

    def value(self) -> dict[str, Any]:
        """As JSON in a stable order."""
        return {**self.fields, "rules": self.rules}

    def write(self, bundle: Bundle, by: str) -> None:
        policy = AgentPolicy.objects.create(bundle=bundle, **self.fields)
        AgentRule.objects.bulk_create(AgentRule(policy=policy, created_by=by[:150], **rule) for rule in self.rules)

    def described(self) -> dict[str, Any]:
        """As the audit log names it."""
        return {**self.fields, "rules": self.rules[:50]}


def of_bundle(bundle: Bundle) -> BundlePolicy | None:
    """None where it says nothing: everything is allowed within the limits of the product."""
    row = AgentPolicy.objects.filter(bundle=bundle).prefetch_related("rules").first()
    if row is None:
        return None
    rules = [{name: getattr(rule, name) for name in _OF_A_RULE} for rule in row.rules.all()]
    found = BundlePolicy({name: getattr(row, name) for name in _FIELDS}, rules)
    return found if found.value() != BundlePolicy(_columns(AgentPolicy()), []).value() else None


def read(value: Any) -> BundlePolicy | None:
    """Raises ValidationError that names what is wrong. `value`: of the file; None for no policy."""
    if value is None:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("rules", []), list):
        raise ValidationError("policy must be an object with a list of rules.")
    if unknown := sorted(value.keys() - {*_FIELDS, "rules"}):
        raise ValidationError(f"policy: {unknown[0][:100]} is unknown.")
    if len(value.get("rules", [])) > RULES:
        raise ValidationError(f"A policy has at most {RULES} rules.")
    policy = AgentPolicy(**{name: value[name] for name in _FIELDS if name in value})
    _check(policy, "policy", _FIELDS)
    rules = [_rule(rule, f"rule {number} of the policy") for number, rule in enumerate(value.get("rules", []), 1)]
    if len({(rule["kind"], rule["pattern"]) for rule in rules}) < len(rules):
        raise ValidationError("policy: two rules have the same pattern.")
    return BundlePolicy(_columns(policy), rules)


def _columns(policy: AgentPolicy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in _FIELDS}


def _rule(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not {"effect", "kind", "pattern"} <= value.keys() <= {*_OF_A_RULE}:
        raise ValidationError(f"{place} must have effect, kind and pattern.")
    rule = AgentRule(**value)
    _check(rule, place, _OF_A_RULE)
    return {name: getattr(rule, name) for name in _OF_A_RULE}


def _check(row: AgentPolicy | AgentRule, place: str, names: tuple[str, ...]) -> None:
    for name in names:
        field, value = row._meta.get_field(name), getattr(row, name)
        if field.null:  # a number
            if value is not None and (type(value) is not int or value < 1):
                raise ValidationError(f"{place}: {name} must be a whole number above 0, or null.")
        elif not isinstance(value, str):
            raise ValidationError(f"{place}: {name} must be a text.")
    given = {name for name in names if getattr(row, name) is not None}
    try:
        row.clean_fields(exclude={field.name for field in row._meta.fields} - given)
    except ValidationError as problem:
        name, texts = next(iter(problem.message_dict.items()))
        raise ValidationError(f"{place}: {name}: {texts[0][:300]}") from problem
