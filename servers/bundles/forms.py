"""The forms of a bundle: the bundle itself, and one part for each member."""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from django import forms

from servers import access
from servers.bundles import names, overrides
from servers.bundles.changing import (
    INSTRUCTIONS_CHARS,
    MOST_PATTERNS,
    PATTERN_CHARS,
    BundleInput,
    Membership,
    current_members,
    former_members,
    of_deleted_servers,
    reserved,
)
from servers.bundles.overrides import Override
from servers.enums import BundleListing
from servers.kit.choices import ServersField, offer
from servers.kit.lines import unique_lines
from servers.models import Bundle, BundleMember, Server

_MONO: Final = {"class": "form-control mono", "spellcheck": "false", "autocomplete": "off"}
#: what `changing` allows, including line ends
_PATTERNS_CHARS: Final = MOST_PATTERNS * (PATTERN_CHARS + 2)


def _patterns(label: str) -> forms.CharField:
    return forms.CharField(
        label=label,
        required=False,
        max_length=_PATTERNS_CHARS,
        widget=forms.Textarea(attrs={**_MONO, "rows": 2}),
    )


_LISTS: Final = ("tools", "resources", "prompts")
_PART: Final = re.compile(r"member-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-alias")
#: the maximum length of an exported bundle
FILE_CHARS: Final = 1_000_000


class MemberForm(forms.Form):
    alias = forms.CharField(
        label="Alias", max_length=names.ALIAS_CHARS, widget=forms.TextInput(attrs={**_MONO, "size": 12})
    )
    position = forms.IntegerField(
        label="Order", min_value=0, max_value=999, widget=forms.NumberInput(attrs={"class": "form-control num"})
    )
    remove = forms.BooleanField(label="Remove", required=False)
    tools = _patterns("Tools")
    resources = _patterns("Resources")
    prompts = _patterns("Prompts")

    def __init__(self, server: Server, row: BundleMember | None, data: Any = None, **initial: Any) -> None:
        self.server, self._row = server, row
        if row is not None:
            initial = {"alias": row.alias, "position": row.position + 1}
            initial |= {name: "\n".join(filter(_is_line, getattr(row, name))) for name in _LISTS}
        super().__init__(data, prefix=f"member-{server.uid}", initial=initial)

    def membership(self) -> Membership:
        given = self.cleaned_data
        lists = {name: (*unique_lines(given[name]), *self._unshown(name)) for name in _LISTS}
        kept = Membership.of(self._row).overrides if self._row is not None else {}
        return Membership(self.server, given["alias"].strip(), **lists, overrides=kept)

    def _unshown(self, name: str) -> list[str]:
        """Patterns that stay unchanged: written as lines, they would hide or offer something else."""
        return [] if self._row is None else [one for one in getattr(self._row, name) if not _is_line(one)]


class BundleForm(forms.Form):
    """`bundle` None: a new one, whose members have proposed aliases and offer everything. `outdated`: the page is older than
    the bundle, so it has no part for a member that was added since."""

    name = forms.CharField(
        label="Name", max_length=120, widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"})
    )
    slug = forms.CharField(
        label="Short name",
        max_length=64,
        required=False,
        help_text="Used in the address. Generated from the name if empty. Agents that use the old address lose access.",
        widget=forms.TextInput(attrs=_MONO),
    )
    instructions = forms.CharField(
        label="Instructions",
        required=False,
        max_length=INSTRUCTIONS_CHARS,
        help_text="Given to the model before the servers' instructions.",
        widget=forms.Textarea(attrs={"class": "form-control", "rows": 3}),
    )
    listing = forms.ChoiceField(
        label="List",
        choices=[
            (BundleListing.ALL.value, "All offered tools"),
            (BundleListing.SEARCH.value, "Search: the tools find_tool and call_tool, and those below"),
        ],
        initial=BundleListing.ALL.value,
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    pinned = forms.CharField(
        label="Always list in search mode",
        required=False,
        max_length=_PATTERNS_CHARS,
        help_text="Names or patterns as in the bundle, such as docs__*, one per line.",
        widget=forms.Textarea(attrs={**_MONO, "rows": 2}),
    )
    add = ServersField(label="Add servers", required=False)
    confirm = forms.BooleanField(label="Offer this many tools anyway", required=False)
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, user: Any, bundle: Bundle | None, data: Any = None, *, outdated: bool = False) -> None:
        initial: dict[str, Any] = {}
        rows: list[BundleMember] = []
        if bundle is not None:
            rows = list(current_members(bundle))
            initial = {name: getattr(bundle, name) for name in ("name", "slug", "instructions", "listing", "version")}
            initial["pinned"] = "\n".join(bundle.pinned)
        super().__init__(data, initial=initial)
        self.bundle = bundle
        shown = _shown_parts(data) if bundle is not None and data is not None else set()
        self.added = [row.server for row in rows if outdated and str(row.server.uid) not in shown]
        self.members = [MemberForm(row.server, row, None if row.server in self.added else data) for row in rows]
        gone = shown - {str(row.server.uid) for row in rows}
        self.gone = list(access.visible_servers(user).filter(archived_at=None, uid__in=gone)) if gone else []
        former = former_members(bundle) if gone else {}
        self.members += [MemberForm(server, former.get(server.pk), data) for server in self.gone]
        mine = {one.server.pk for one in self.members}
        offer(self, "add", access.visible_servers(user).filter(archived_at=None).exclude(pk__in=mine))
        field = self.fields["add"]
        if bundle is None:
            field.label, field.help_text = (
                "Servers",
                "They are added in the order of this list. You can change it afterwards.",
            )

    def is_valid(self) -> bool:
        parts = [one.is_valid() for one in self.members]
        return super().is_valid() and all(parts)

    def wanted(self) -> BundleInput:
        """After is_valid()."""
        given = self.cleaned_data
        kept = [one for one in self.members if not one.cleaned_data["remove"]]
        members = [one.membership() for one in sorted(kept, key=lambda one: int(one.cleaned_data["position"]))]
        owners, former = reserved(self.bundle), former_members(self.bundle)
        orphans = of_deleted_servers(self.bundle)
        for server in given["add"]:
            if server.pk in former:  # what the bundle hid of it before stays hidden
                members.append(Membership.of(former[server.pk]))
                continue
            taken = [*orphans, *(row.alias for row in owners.values() if row.server_id != server.pk)]
            proposed = names.alias_from(server.slug, [*taken, *(one.alias for one in members)])
            members.append(Membership(server, proposed))
        return BundleInput(
            given["name"].strip(),
            members,
            given["slug"].strip().lower(),
            given["instructions"],
            given["listing"],
            tuple(unique_lines(given["pinned"])),
        )


def _shown_parts(data: Mapping[str, Any]) -> set[str]:
    """The uids of the servers for which the page had a part."""
    return {found[1] for name in data if (found := _PART.fullmatch(name)) is not None}


class OverrideForm(forms.Form):
    """How a bundle presents one tool. A parameter that the server requires cannot be hidden."""

    description = forms.CharField(
        label="Description for models",
        required=False,
        max_length=overrides.DESCRIPTION_CHARS,
        help_text="Leave it empty to use the server's description.",
        widget=forms.Textarea(attrs={"class": "form-control", "rows": 6}),
    )
    hidden = forms.MultipleChoiceField(label="Hide parameters", required=False, widget=forms.CheckboxSelectMultiple)
    version = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, tool: Mapping[str, Any], override: Override, version: int, data: Any = None) -> None:
        initial = {"description": override.description, "hidden": override.hidden, "version": version}
        super().__init__(data, initial=initial)
        found = overrides.parameters(tool)
        self.required = [name for name, required in found.items() if required]
        field = cast("forms.MultipleChoiceField", self.fields["hidden"])
        field.choices = [(name, name) for name, required in found.items() if not required]

    def override(self) -> Override:
        """After is_valid()."""
        return Override(self.cleaned_data["description"].strip(), tuple(sorted(self.cleaned_data["hidden"])))


class ImportForm(forms.Form):
    text = forms.CharField(
        label="Exported bundle",
        max_length=FILE_CHARS,
        help_text="The JSON of an export. Its servers must be registered here under the same short names.",
        widget=forms.Textarea(attrs={**_MONO, "rows": 12}),
    )


def _is_line(pattern: str) -> bool:
    """Whether it fits on one line of a form: the name of a hostile tool may have line breaks, or end in a space."""
    return pattern.strip().splitlines() == [pattern]
