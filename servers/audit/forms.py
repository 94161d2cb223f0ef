"""The filters of the audit page. They stand in the URL; what cannot be a filter counts as none."""

from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib.auth import get_user_model
from django.db.models import QuerySet

from servers.audit import query
from servers.audit.query import GROUPS, Filters, actions_of
from servers.enums import AuditOutcome
from servers.models import AuditEvent, Server

_SELECT = {"class": "form-select fit"}
_MOMENT = "%Y-%m-%dT%H:%M"


class AuditFilterForm(forms.Form):
    text = forms.CharField(
        required=False,
        label="Search",
        widget=forms.TextInput(attrs={"type": "search", "placeholder": "Tool, server, user, address or #number"}),
    )
    kind = forms.ChoiceField(required=False, label="Kind", widget=forms.Select(attrs=_SELECT))
    server = forms.ChoiceField(required=False, label="Server", widget=forms.Select(attrs=_SELECT))
    user = forms.ChoiceField(required=False, label="User", widget=forms.Select(attrs=_SELECT))
    outcome = forms.ChoiceField(
        required=False,
        label="Outcome",
        choices=[("", "Any outcome"), *AuditOutcome.choices],
        widget=forms.Select(attrs=_SELECT),
    )
    since = forms.DateTimeField(required=False, label="From (UTC)")
    until = forms.DateTimeField(required=False, label="To (UTC)")

    def __init__(self, params: Any, servers: QuerySet[Server], **kwargs: Any) -> None:
        """`servers`: those that the reader sees, to choose from."""
        self.filters = Filters.read(params)
        super().__init__(initial=self._initial(), **kwargs)
        offers = {"kind": _kinds(), "server": _servers(servers, self.filters.server), "user": _users(self.filters.user)}
        for name, offer in offers.items():
            cast("forms.ChoiceField", self.fields[name]).choices = offer
        for name in ("since", "until"):
            self.fields[name].widget = forms.DateTimeInput(
                attrs={"type": "datetime-local", "class": "form-control fit"}, format=_MOMENT
            )

    @property
    def choices(self) -> list[forms.BoundField]:
        return [self[name] for name in ("kind", "server", "user", "outcome")]

    @property
    def moments(self) -> list[forms.BoundField]:
        return [self["since"], self["until"]]

    def active(self) -> list[tuple[str, str, str]]:
        """(name, label, value in words) of each filter that is set."""
        return [(name, str(self[name].label), self._words(name)) for name in self.fields if getattr(self.filters, name)]

    def _words(self, name: str) -> str:
        value = getattr(self.filters, name)
        if name in ("since", "until"):
            return f"{value:%Y-%m-%d %H:%M}"
        choices = dict(getattr(self.fields[name], "choices", ()))
        return str(choices.get(value) or query.action_word(value))

    def _initial(self) -> dict[str, Any]:
        return {name: getattr(self.filters, name) for name in self.base_fields}


def _kinds() -> list[Any]:
    groups = [("", "Any kind"), *((name, label) for name, (label, _) in GROUPS.items())]
    single = [
        (label, [(str(action), action.label) for action in actions_of(name)]) for name, (label, _) in GROUPS.items()
    ]
    return [*groups, *single]


def _servers(servers: QuerySet[Server], chosen: str) -> list[tuple[str, str]]:
    """Those registered now, and the wanted one when it is gone: its events keep its name."""
    choices = [("", "Any server"), *((str(uid), name) for uid, name in servers.values_list("uid", "name"))]
    if chosen and chosen not in dict(choices):
        choices.append((chosen, f"{_kept_name(chosen)} (not registered)"))
    return choices


def _kept_name(chosen: str) -> str:
    try:
        uid = UUID(chosen)
    except ValueError:
        return chosen
    newest = AuditEvent.objects.filter(server_uid=uid).order_by("-seq").values_list("server_name", flat=True)
    return newest.first() or chosen


def _users(chosen: str) -> list[tuple[str, str]]:
    users = get_user_model()._default_manager.order_by("username").values_list("username", flat=True)
    names = [*users, "mcpadmin"]
    if chosen and chosen not in names:
        names.append(chosen)
    return [("", "Any user"), *((name, name) for name in names)]
