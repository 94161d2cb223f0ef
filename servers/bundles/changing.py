"""Creating, changing and deleting bundles: each an audit event with what it changed."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.text import slugify

from servers import permissions, validators
from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.bundles import exposed, names, offers, overrides
from servers.bundles.overrides import Override
from servers.enums import AuditAction, BundleListing, DefinitionKind, PolicyEffect, PolicyKind
from servers.models import AgentRule, Bundle, BundleMember, Definition, Server
from servers.patterns import matches
from servers.signals import bundle_changed

MOST_MEMBERS: Final = 50
MOST_PATTERNS: Final = 500
PATTERN_CHARS: Final = 500
MOST_OVERRIDES: Final = 200
INSTRUCTIONS_CHARS: Final = 4_000
#: limits of one text and of one list in an audit event
SHOWN_CHARS, SHOWN_ITEMS = 500, 50
#: people who may change servers may also combine them
PERMISSION: Final = "change_server"
_OF_URI: Final = (DefinitionKind.RESOURCE, DefinitionKind.RESOURCE_TEMPLATE)
_GRAMMAR: Final = "2 to 12 lowercase letters, digits and single hyphens, beginning with a letter"


class Conflict(Exception):
    """Another person has changed the bundle since it was read."""


@dataclass(frozen=True)
class Membership:
    server: Server
    alias: str
    tools: Sequence[str] = offers.EVERYTHING
    resources: Sequence[str] = offers.EVERYTHING
    prompts: Sequence[str] = offers.EVERYTHING
    overrides: Mapping[str, Override] = field(default_factory=dict)

    def columns(self) -> dict[str, Any]:
        return {
            "tools": list(self.tools),
            "resources": list(self.resources),
            "prompts": list(self.prompts),
            "overrides": {tool: one.value() for tool, one in sorted(self.overrides.items()) if one},
        }

    @classmethod
    def of(cls, row: BundleMember) -> "Membership":
        """As it is now."""
        known = {tool: overrides.stored(row.overrides, tool) for tool in row.overrides}
        return cls(row.server, row.alias, row.tools, row.resources, row.prompts, known)


@dataclass(frozen=True)
class BundleInput:
    """`slug` empty: made from the name."""

    name: str
    members: Sequence[Membership]
    slug: str = ""
    instructions: str = ""
    listing: str = BundleListing.ALL
    pinned: Sequence[str] = field(default=())

    def columns(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "instructions": self.instructions,
            "listing": self.listing,
            "pinned": list(self.pinned),
        }


def current_members(bundle: Bundle) -> QuerySet[BundleMember]:
    """In their order, with their servers. Also those whose server is archived."""
    return bundle.members.filter(retired_at=None).select_related("server").order_by("position", "pk")


def with_member(bundle: Bundle, alias: str, **changed: Any) -> BundleInput:
    """The bundle as it is, except for these fields of one Membership."""
    members = [
        replace(Membership.of(row), **(changed if row.alias == alias else {})) for row in current_members(bundle)
    ]
    return BundleInput(bundle.name, members, bundle.slug, bundle.instructions, bundle.listing, bundle.pinned)


# --- verbs -----------------------------------------------------------------------------------------------------------
def create(actor: Actor, user: Any, wanted: BundleInput) -> Bundle:
    """Raises access.Denied (recorded) and ValidationError by field."""
    permissions.require(user, actor, PERMISSION, subject=wanted.name[:200])
    slug = wanted.slug or _free_slug(wanted.name)
    check(wanted, slug)
    with _taken_in_words(), audited(actor) as trail:
        bundle = Bundle.objects.create(slug=slug, created_by_id=user.pk, **wanted.columns())
        _write_members(bundle, wanted.members)
        details = {"bundle": str(bundle.uid), **_shortened(described(bundle))}
        trail.note(AuditAction.BUNDLE_CREATE, None, bundle.name, details)
        _tell(bundle)
    return bundle


def change(actor: Actor, user: Any, bundle: Bundle, wanted: BundleInput, expected_version: int) -> Bundle:
    """Raises as `create`, and Conflict."""
    permissions.require(user, actor, PERMISSION, subject=bundle.name)
    slug = wanted.slug or bundle.slug
    check(wanted, slug, bundle)
    with _taken_in_words(), audited(actor) as trail:
        current = Bundle.objects.select_for_update(no_key=True).get(pk=bundle.pk)
        if current.version != expected_version:
            raise Conflict
        before = described(current)
        for name, value in {**wanted.columns(), "slug": slug, "version": current.version + 1}.items():
            setattr(current, name, value)
        current.save()
        _write_members(current, wanted.members)
        after = described(current)
        changed = {
            name: {"from": _shortened(before[name]), "to": _shortened(after[name])}
            for name in after
            if before[name] != after[name]
        }
        if changed:
            trail.note(AuditAction.BUNDLE_CHANGE, None, current.name, {"bundle": str(current.uid), "changed": changed})
        _tell(current)
    return current


def delete(actor: Actor, user: Any, bundle: Bundle) -> None:
    """Its endpoint ends. It can be restored as it was for 90 days. Raises access.Denied (recorded)."""
    permissions.require(user, actor, PERMISSION, subject=bundle.name)
    _switch(actor, bundle, AuditAction.BUNDLE_DELETE, deleted=True)


def restore(actor: Actor, user: Any, bundle: Bundle) -> None:
    """Raises access.Denied (recorded)."""
    permissions.require(user, actor, PERMISSION, subject=bundle.name)
    _switch(actor, bundle, AuditAction.BUNDLE_RESTORE, deleted=False)


def _switch(actor: Actor, bundle: Bundle, action: AuditAction, *, deleted: bool) -> None:
    with audited(actor) as trail:
        rows = Bundle.objects.filter(pk=bundle.pk, deleted_at__isnull=deleted)
        if rows.update(deleted_at=timezone.now() if deleted else None):
            trail.note(action, None, bundle.name, {"bundle": str(bundle.uid), "short_name": bundle.slug})
            _tell(bundle)


def _tell(bundle: Bundle) -> None:
    send = partial(bundle_changed.send_robust, sender=Bundle, bundle_uid=bundle.uid)
    transaction.on_commit(send, robust=True)


def _write_members(bundle: Bundle, wanted: Sequence[Membership]) -> None:
    now, current = timezone.now(), {row.server_id: row for row in bundle.members.filter(retired_at=None)}
    kept = {one.server.pk for one in wanted if one.server.pk in current and current[one.server.pk].alias == one.alias}
    gone = [row for server_id, row in current.items() if server_id not in kept]
    BundleMember.objects.filter(pk__in=[row.pk for row in gone]).update(retired_at=now)
    exposed.retire(bundle, Server.objects.filter(pk__in=[row.server_id for row in gone]).values_list("uid", flat=True))
    for position, one in enumerate(wanted):
        fields = {"position": position, **one.columns()}
        if one.server.pk in kept:
            BundleMember.objects.filter(pk=current[one.server.pk].pk).update(**fields)
        else:
            bundle.members.create(server=one.server, alias=one.alias, **fields)


def described(bundle: Bundle) -> dict[str, Any]:
    """All of a bundle, as the audit log names it. Members in their order."""
    return {
        "name": bundle.name,
        "short_name": bundle.slug,
        "listing": bundle.listing,
        "instructions": bundle.instructions,
        "pinned": list(bundle.pinned),
        "members": [
            {
                "server": row.server.name,
                "alias": row.alias,
                "tools": row.tools,
                "resources": row.resources,
                "prompts": row.prompts,
                "overrides": {tool: overrides.stored(row.overrides, tool).value() for tool in row.overrides},
            }
            for row in current_members(bundle)
        ],
    }


def _shortened(value: Any) -> Any:
    """Shortened for an event, which says how much of a long text or list is left out. Compare values before this."""
    if isinstance(value, str):
        return value if len(value) <= SHOWN_CHARS else f"{value[:SHOWN_CHARS]}… ({len(value):,} characters)"
    if isinstance(value, list):
        more = len(value) - SHOWN_ITEMS
        return [*map(_shortened, value[:SHOWN_ITEMS]), *([f"… and {more} more"] if more > 0 else [])]
    if isinstance(value, dict):
        more = len(value) - SHOWN_ITEMS
        kept = {name: _shortened(part) for name, part in list(value.items())[:SHOWN_ITEMS]}
        return kept | ({"…": f"and {more} more"} if more > 0 else {})
    return value


# --- rules -----------------------------------------------------------------------------------------------------------
def check(wanted: BundleInput, slug: str, bundle: Bundle | None = None) -> None:
    """Raises ValidationError by field."""
    wrong: dict[str, list[str]] = {}
    if not wanted.name.strip():
        wrong.setdefault("name", []).append("Enter a name.")
    if problem := slug_problem(slug, bundle):
        wrong.setdefault("slug", []).append(problem)
    if len(wanted.instructions) > INSTRUCTIONS_CHARS:
        wrong.setdefault("instructions", []).append(f"At most {INSTRUCTIONS_CHARS} characters.")
    if _too_long(wanted.pinned):
        wrong.setdefault("pinned", []).append(f"At most {MOST_PATTERNS} patterns of {PATTERN_CHARS} characters.")
    if problems := _member_problems(wanted.members, bundle):
        wrong["members"] = problems
    if wrong:
        raise ValidationError({name: [ValidationError(text) for text in texts] for name, texts in wrong.items()})


def slug_problem(slug: str, bundle: Bundle | None = None) -> str:
    """Why the short name cannot be used; empty if it can. Servers and bundles share their addresses."""
    try:
        validators.validate_slug(slug)
    except ValidationError as problem:
        return str(problem.messages[0])
    if not slug or slug != slugify(slug):
        return "Use lowercase letters, digits and hyphens."
    if (server := Server.objects.filter(slug=slug).first()) is not None:
        return f"The server {server.name} already uses this short name. Choose another one."
    other = Bundle.objects.filter(slug=slug).exclude(pk=bundle.pk if bundle else 0).first()
    if other is None:
        return ""
    state = "deleted bundle" if other.deleted_at else "bundle"
    return f"The {state} {other.name} already uses this short name. Choose another one."


def _member_problems(members: Sequence[Membership], bundle: Bundle | None) -> list[str]:
    if not members:
        return ["Choose at least one server."]
    if len(members) > MOST_MEMBERS:
        return [f"A bundle has at most {MOST_MEMBERS} servers."]
    problems: list[str] = []
    by_skeleton: dict[str, Membership] = {}
    seen: set[int] = set()
    owners, orphans = reserved(bundle), of_deleted_servers(bundle)
    for one in members:
        if one.server.pk in seen:
            problems.append(f"{one.server.name} is chosen twice.")
        seen.add(one.server.pk)
        if not names.ALIAS.match(one.alias):
            problems.append(f"Alias “{one.alias}” of {one.server.name}: use {_GRAMMAR}.")
            continue
        skeleton = names.skeleton(one.alias)
        if (other := by_skeleton.setdefault(skeleton, one)) is not one:
            same = "is also the alias" if other.alias == one.alias else f"looks like {other.alias}, the alias"
            problems.append(
                f"Alias “{one.alias}” of {one.server.name} {same} of {other.server.name}. Change one of them."
            )
        owner = owners.get(skeleton)
        if owner is not None and owner.server_id != one.server.pk:
            until = (owner.retired_at or timezone.now()) + exposed.TOMBSTONE
            problems.append(
                f"Alias “{one.alias}” of {one.server.name}: it belonged to {owner.server.name}, and agents may still know "
                f"its names. It is reserved until {until:%Y-%m-%d}. Choose another alias."
            )
        if owner is None and skeleton in orphans:
            problems.append(
                f"Alias “{one.alias}” of {one.server.name}: it belonged to a server that was deleted, and agents may still "
                f"know its names. It is reserved until {orphans[skeleton]:%Y-%m-%d}. Choose another alias."
            )
        if _too_long([*one.tools, *one.resources, *one.prompts]):
            problems.append(f"{one.server.name}: at most {MOST_PATTERNS} patterns of {PATTERN_CHARS} characters.")
        problems += _override_problems(one)
    return problems or _rule_problems(members, bundle)


def _rule_problems(members: Sequence[Membership], bundle: Bundle | None) -> list[str]:
    """Rules match names, which begin with the alias: under another alias, what they deny or ask about would be
    allowed."""
    if bundle is None:
        return []
    before = former_aliases(bundle)
    renamed = [(one, before[one.server.pk]) for one in members if before.get(one.server.pk, one.alias) != one.alias]
    if not renamed:
        return []
    rules = list(AgentRule.objects.filter(policy__bundle=bundle).exclude(effect=PolicyEffect.ALLOW))
    problems = []
    for one, old in renamed:
        marked = _marked_names(bundle, one, old) if rules else []
        for rule in rules:
            others = [
                each for each in rules if each.kind == rule.kind and each.effect in (rule.effect, PolicyEffect.DENY)
            ]
            missing = _missing_pattern(one, old, rule, others) or _missing_name(marked, rule, others)
            if missing:
                problems.append(
                    f"Alias “{one.alias}” of {one.server.name}: the rule “{PolicyEffect(rule.effect).label} {rule.pattern}” "
                    f"of the bundle's policy would no longer match. Add one for {missing}, or remove it, before you change "
                    "the alias."
                )
    return problems


def _missing_pattern(one: Membership, old: str, rule: AgentRule, others: Sequence[AgentRule]) -> str:
    """A pattern for what the rule matches now and none of `others` would match under the new alias; empty if there is
    nothing. Considers names that do not exist yet, too."""
    for before, after in _heads(one, old, rule):
        covered = {part for other in others for part in names.remainders(other.pattern, after)}
        missing = names.remainders(rule.pattern, before) - covered - {""}
        if missing and "*" not in covered:
            return names.pattern_renamed(rule.pattern, old, one.alias) or after + min(missing, key=len)
    return ""


def _heads(one: Membership, old: str, rule: AgentRule) -> Iterator[tuple[str, str]]:
    """What the names or URIs of a server begin with, before and after."""
    if rule.kind != PolicyKind.RESOURCE:
        yield f"{old}{names.SEPARATOR}", f"{one.alias}{names.SEPARATOR}"
        return
    known = Definition.objects.filter(server=one.server, kind__in=_OF_URI, removed_at=None).values_list(
        "key", flat=True
    )
    schemes = {uri.partition("://")[0] for uri in [*known, rule.pattern] if "://" in uri}
    for scheme in sorted({"file", *(scheme for scheme in schemes if not set("*?") & set(scheme))}):
        yield f"{scheme}://{old}.mcp/", f"{scheme}://{one.alias}.mcp/"
    yield f"urn:mcp:{old}:", f"urn:mcp:{one.alias}:"


def _marked_names(bundle: Bundle, one: Membership, old: str) -> list[tuple[PolicyKind, str, str]]:
    """Names with a hash suffix, and their new names: under an alias of another length, they are cut elsewhere."""
    uid, found = str(one.server.uid), []
    for kind, policy_kind in ((DefinitionKind.TOOL, PolicyKind.TOOL), (DefinitionKind.PROMPT, PolicyKind.PROMPT)):
        for target, name in exposed.under_alias(bundle.pk, kind, old).items():
            if target[0] == uid and names.plain(old, target[1]) != name:
                new = names.plain(one.alias, target[1]) or names.marked(one.alias, target)
                found.append((policy_kind, name, new))
    return found


def _missing_name(marked: Sequence[tuple[PolicyKind, str, str]], rule: AgentRule, others: Sequence[AgentRule]) -> str:
    for kind, name, new in marked:
        if (
            kind == rule.kind
            and matches(rule.pattern, name)
            and not any(matches(other.pattern, new) for other in others)
        ):
            return new
    return ""


def former_aliases(bundle: Bundle | None) -> dict[int, str]:
    """By the server's key, its alias in the bundle, or its last one while that is reserved."""
    return {server_id: row.alias for server_id, row in former_members(bundle).items()}


def former_members(bundle: Bundle | None) -> dict[int, BundleMember]:
    """By the server's key, its membership in the bundle, or its last one while its alias is reserved."""
    rows = sorted(reserved(bundle).values(), key=lambda row: row.retired_at or timezone.now())
    return {row.server_id: row for row in rows}


def reserved(bundle: Bundle | None) -> dict[str, BundleMember]:
    """The latest owner of each alias by its skeleton, today's too: an alias does not change hands."""
    if bundle is None:
        return {}
    rows = bundle.members.exclude(retired_at__lt=timezone.now() - exposed.TOMBSTONE).select_related("server")
    newest = sorted(rows, key=lambda row: row.retired_at or timezone.now())
    return {names.skeleton(row.alias): row for row in newest}


def of_deleted_servers(bundle: Bundle | None) -> dict[str, datetime]:
    """Until when the aliases of deleted servers are reserved, by their skeletons. Only names of tools and prompts are
    left of these servers."""
    found: dict[str, datetime] = {}
    now = timezone.now()
    rows = exposed.of_deleted_servers(bundle.pk).values_list("exposed", "retired_at") if bundle is not None else ()
    for name, retired_at in rows:
        until = (retired_at or now) + exposed.TOMBSTONE
        if until > now:
            found[names.skeleton(name.partition(names.SEPARATOR)[0])] = until
    return found


def _too_long(patterns: Sequence[str]) -> bool:
    return len(patterns) > MOST_PATTERNS or any(len(pattern) > PATTERN_CHARS for pattern in patterns)


def _override_problems(one: Membership) -> list[str]:
    if len(one.overrides) > MOST_OVERRIDES:
        return [f"{one.server.name}: at most {MOST_OVERRIDES} tools can be described here."]
    if any(
        len(override.description) > overrides.DESCRIPTION_CHARS or len(override.hidden) > overrides.MOST_HIDDEN
        for override in one.overrides.values()
    ):
        return [
            f"{one.server.name}: a description has at most {overrides.DESCRIPTION_CHARS:,} characters, and at most "
            f"{overrides.MOST_HIDDEN} parameters of a tool can be hidden."
        ]
    return []


def _free_slug(name: str) -> str:
    base = slugify(name)[:58].strip("-") or "bundle"
    taken: Collection[str] = {
        *Server.objects.filter(slug__startswith=base).values_list("slug", flat=True),
        *Bundle.objects.filter(slug__startswith=base).values_list("slug", flat=True),
        *validators.RESERVED_SLUGS,
    }
    number, slug = 2, base
    while slug in taken:
        slug, number = f"{base}-{number}", number + 1
    return slug


@contextmanager
def _taken_in_words() -> Iterator[None]:
    """Two people who choose the same short name at once: the second gets an error."""
    try:
        yield
    except IntegrityError as problem:
        if "slug" not in str(problem):
            raise
        raise ValidationError({"slug": "This short name is already in use. Choose another one."}) from problem
