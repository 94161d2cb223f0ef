"""Granting a reference to a person or a group."""

from typing import Any, cast

from django import forms
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group

from servers.kit.choices import LongSelect

_MOST_OFFERED = 500


class ReferenceGrantForm(forms.Form):
    name = forms.CharField(
        label="Reference",
        max_length=1_010,
        help_text="One name, such as MCP_TOKEN or file:/run/secrets/token.",
        widget=forms.TextInput(
            attrs={
                "class": "form-control mono",
                "autocomplete": "off",
                "spellcheck": "false",
                "placeholder": "MCP_TOKEN",
            }
        ),
    )
    to = forms.ChoiceField(
        label="Granted to",
        help_text="Superusers can use all references without a grant.",
        widget=LongSelect(attrs={"class": "form-select"}),
    )

    def __init__(self, data: Any = None, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        people = get_user_model()._default_manager.filter(is_active=True).order_by("username")[:_MOST_OFFERED]
        groups = Group.objects.order_by("name")[:_MOST_OFFERED]
        self._holders: dict[str, Any] = {f"user:{user.pk}": user for user in people}
        self._holders |= {f"group:{group.pk}": group for group in groups}
        offered: list[Any] = [("", "Choose a person or group")]
        offered.append(("People", [(f"user:{user.pk}", user.get_username()) for user in people]))
        if groups:
            offered.append(("Groups", [(f"group:{group.pk}", group.name) for group in groups]))
        cast("forms.ChoiceField", self.fields["to"]).choices = offered

    def holder(self) -> Any:
        """A user or a group. After is_valid()."""
        return self._holders[self.cleaned_data["to"]]
