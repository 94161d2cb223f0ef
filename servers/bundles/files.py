"""A bundle as a file that people review: JSON in a stable order, without secrets and without keys of this installation."""

import json
from typing import Any, Final

from django.core.exceptions import ValidationError

from servers import access
from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.bundles import exported_policy, overrides
from servers.bundles.changing import Membership, Wanted, current_members
from servers.bundles.overrides import Override
from servers.enums import AuditAction, BundleListing
from servers.models import Bundle
from servers.schemas import jsontext

FORMAT: Final = "mcpadmin-bundle"
VERSION: Final = 1
MOST_CHARS: Final = 500_000
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
    if policy := exported_policy.of_bundle(bundle):
        value["policy"] = policy.value()
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def export(actor: Actor, bundle: Bundle) -> str:
    with audited(actor) as trail:
        text = written(bundle)
        trail.note(AuditAction.BUNDLE_EXPORT, None, bundle.name, {"bundle": str(bundle.uid)})
    return text


def read(user: Any, text: str) -> Wanted:
    """Raises ValidationError that names what is wrong."""
    if len(text) > MOST_CHARS:
        raise ValidationError(f"The file has more than {MOST_CHARS:,} characters.")
    try:
        value: Any = jsontext.loads(text)
    except jsontext.JsonProblem as problem:
        raise ValidationError(f"This is not JSON. {problem}") from problem
    if not isinstance(value, dict) or value.get("format") != FORMAT or value.get("version") != VERSION:
        raise ValidationError(f"This is not an exported bundle: format must be {FORMAT} and version {VERSION}.")
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
        exported_policy.read(value.get("policy")),
    )


def _overrides(value: dict[str, Any]) -> dict[str, Override]:
    found = value.get("overrides", {})
    if not isinstance(found, dict):
        raise ValidationError("overrides must be an object: tool, and what is said of it.")
    known = {tool: overrides.stored(found, tool) for tool in found}
    if wrong := [tool for tool, one in known.items() if one.value() != found[tool]]:
        raise ValidationError(
            f"overrides of {wrong[0][:100]}: use description, a text, and hidden, a sorted list of texts."
        )
    return known


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name, "")
    if not isinstance(found, str):
        raise ValidationError(f"{name} must be a text.")
    return found


def _patterns(value: dict[str, Any], name: str, default: list[str]) -> list[str]:
    found = value.get(name, default)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValidationError(f"{name} must be a list of texts.")
    return list(found)
