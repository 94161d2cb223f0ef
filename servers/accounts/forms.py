"""Forms of accounts: the first set-up and invitations share one, so that they have one set of password rules."""

from collections.abc import Callable, Iterable
from typing import Any

from django import forms
from django.contrib.auth import get_user_model
from django.contrib.auth.forms import BaseUserCreationForm, SetPasswordForm, UsernameField
from django.contrib.auth.models import Group
from django.contrib.auth.password_validation import password_validators_help_text_html
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError

from servers.accounts import catalog, names
from servers.accounts.authority import Authority, references_by_group
from servers.enums import Theme
from servers.kit.filters import Ignored, ignored


class AccountForm(BaseUserCreationForm):
    """User name and password of a new account."""

    email = forms.EmailField(required=False, label="Email", help_text="Optional.")

    class Meta(BaseUserCreationForm.Meta):
        fields = ("username", "email")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.order_fields(["username", "email", "password1", "password2"])
        self.fields["username"].help_text = "Letters, digits and @ . + - _"
        self.fields["email"].widget.attrs["autocomplete"] = "email"
        self.fields["password1"].help_text = password_validators_help_text_html()
        self.fields["password2"].help_text = ""

    def validate_password_for_user(self, user: Any, *_: str) -> None:
        """Django would show what is wrong with the password at the repetition."""
        super().validate_password_for_user(user, "password1")  # type: ignore[misc]  # the stubs do not know it

    def clean_username(self) -> str:
        name = str(self.cleaned_data.get("username") or "")
        if problem := names.problem_of(name):
            raise ValidationError(problem)
        return name


class NewPasswordForm(SetPasswordForm):
    """The form of a password link: the password twice, by the same rules."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["new_password1"].label = "New password"
        self.fields["new_password1"].help_text = password_validators_help_text_html()
        self.fields["new_password2"].label = "Confirm new password"
        self.fields["new_password2"].help_text = ""

    def validate_password_for_user(self, user: Any, *_: str) -> None:
        super().validate_password_for_user(user, "new_password1")


class ProfileForm(forms.Form):
    """The form of one's own account. Password links are mailed to this address, so changing it requires the password.
    `may_try`: whether this person may try a password now."""

    name = forms.CharField(
        required=False, max_length=150, label="Name", widget=forms.TextInput(attrs={"autocomplete": "name"})
    )
    email = forms.EmailField(required=False, label="Email", widget=forms.EmailInput(attrs={"autocomplete": "email"}))
    password = forms.CharField(
        required=False,
        label="Current password",
        help_text="Only needed to change the email address.",
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    def __init__(self, user: Any, data: Any = None, may_try: Callable[[], bool] = lambda: True) -> None:
        self.user, self._may_try = user, may_try
        super().__init__(data, initial={"name": user.get_full_name(), "email": user.email})

    def clean(self) -> dict[str, Any]:
        found = super().clean() or {}
        if "email" not in found or found["email"] == self.user.email:
            return found
        if found["password"] and not self._may_try():
            self.add_error("password", "Too many attempts. Try again in a minute.")
        elif not self.user.check_password(found["password"]):
            self.add_error("password", "Enter your current password to change the email address.")
        return found


class PreferencesForm(forms.Form):
    """Each field may be sent alone: the switches in the page header send one."""

    time_zone = forms.RegexField(
        r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$",
        required=False,
        max_length=64,
        error_messages={"invalid": "Choose a time zone from the list."},
    )
    utc = forms.BooleanField(required=False)
    theme = forms.ChoiceField(required=False, choices=Theme.choices)


class UserListFilter(forms.Form):
    SHOW = (("", "All people"), ("active", "Active"), ("disabled", "Disabled"), ("invited", "Invited"))
    text = forms.CharField(
        required=False,
        max_length=150,
        label="Search",
        widget=forms.TextInput(
            attrs={"type": "search", "class": "form-control", "placeholder": "Username, name or email"}
        ),
    )
    show = forms.ChoiceField(
        required=False, choices=SHOW, label="Show", widget=forms.Select(attrs={"class": "form-select fit"})
    )

    def __init__(self, params: Any) -> None:
        self.search = str(params.get("text") or "").strip()[:150]
        chosen = str(params.get("show") or "")
        self.chosen = chosen if chosen in dict(self.SHOW) else ""
        super().__init__(initial={"text": self.search, "show": self.chosen})
        self._given = params

    @property
    def active(self) -> bool:
        return bool(self.search or self.chosen)

    def ignored(self) -> list[Ignored]:
        return ignored(self._given, {"text": self.search, "show": self.chosen})


class PermissionsForm(forms.Form):
    """Groups and permissions of a person or an invitation. `authority` decides what can be ticked; what the person has
    and the manager may not give stays visible and disabled."""

    groups = forms.ModelMultipleChoiceField(queryset=Group.objects.none(), required=False, label="Groups")
    own = forms.MultipleChoiceField(
        choices=[(permission.codename, permission.name) for permission in catalog.PERMISSIONS.values()],
        required=False,
        label="Permissions",
    )
    superuser = forms.BooleanField(required=False, label="Superuser")
    seen = forms.CharField(required=False, max_length=16, widget=forms.HiddenInput)

    def __init__(self, authority: Authority, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.authority = authority
        groups = Group.objects.order_by("name").prefetch_related("permissions__content_type")
        self.fields["groups"].queryset = groups  # type: ignore[attr-defined]  # of a model choice field
        self.all_groups = list(groups)

    def group_rows(self) -> list[dict[str, Any]]:
        chosen = {str(getattr(value, "pk", value)) for value in self["groups"].value() or ()}
        references = references_by_group()
        return [
            {
                "group": group,
                "permissions": catalog.names(given := catalog.permissions_of_group(group)),
                "checked": str(group.pk) in chosen,
                "disabled": not self.authority.may_give(given | references.get(group.pk, frozenset())),
            }
            for group in self.all_groups
        ]

    def sections(self) -> list[dict[str, Any]]:
        return permission_sections(self.authority, self["own"].value() or ())


class InviteForm(PermissionsForm):
    name = forms.CharField(
        required=False,
        max_length=150,
        label="Name",
        help_text="Shown beside the username. The person can change it later.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    email = forms.EmailField(required=False, label="Email", widget=forms.EmailInput(attrs={"autocomplete": "off"}))


class ServiceAccountForm(PermissionsForm):
    name = UsernameField(  # normalizes the name: "\uff21" becomes "A"
        max_length=150,
        label="Name",
        help_text="Letters, digits and @ . + - _",
        validators=[UnicodeUsernameValidator()],
        widget=forms.TextInput(attrs={"class": "form-control"}),
    )
    purpose = forms.CharField(
        required=False,
        max_length=300,
        label="Purpose",
        help_text="What runs as this account, and whom to contact about it.",
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )

    def __init__(self, authority: Authority, *args: Any, **kwargs: Any) -> None:
        super().__init__(authority, *args, **kwargs)
        self.fields["name"].widget.attrs["autocomplete"] = "off"  # the browser would offer the manager's own name

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if problem := names.problem_of(name):
            raise ValidationError(problem)
        return name


class GroupForm(forms.Form):
    name = forms.CharField(max_length=150, label="Name")
    own = forms.MultipleChoiceField(
        choices=[(permission.codename, permission.name) for permission in catalog.PERMISSIONS.values()],
        required=False,
        label="Permissions",
    )
    seen = forms.CharField(required=False, max_length=16, widget=forms.HiddenInput)

    def __init__(self, authority: Authority, group: Group | None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.authority, self.group = authority, group

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"]).strip()
        others = Group.objects.exclude(pk=self.group.pk) if self.group else Group.objects.all()
        if others.filter(name__iexact=name).exists():
            raise ValidationError("A group with this name already exists.")
        return name

    def sections(self) -> list[dict[str, Any]]:
        return permission_sections(self.authority, self["own"].value() or ())


def permission_sections(authority: Authority, chosen: Iterable[str]) -> list[dict[str, Any]]:
    """The catalog as the checkboxes of a form."""
    ticked = set(chosen)
    return [
        {
            "title": section.title,
            "rows": [
                {
                    "permission": permission,
                    "needs": catalog.names(permission.needs),
                    "checked": permission.codename in ticked,
                    "disabled": not authority.may_give({permission.codename}),
                }
                for permission in section.permissions
            ],
        }
        for section in catalog.SECTIONS
    ]


class HandOverForm(forms.Form):
    to = forms.ModelChoiceField(
        queryset=get_user_model()._default_manager.none(),
        label="New owner",
        empty_label="Choose a person",
        widget=forms.Select(attrs={"class": "form-select"}),
    )

    def __init__(self, user: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        people = get_user_model()._default_manager.filter(is_active=True).exclude(pk=user.pk).order_by("username")
        self.fields["to"].queryset = people  # type: ignore[attr-defined]  # of a model choice field
