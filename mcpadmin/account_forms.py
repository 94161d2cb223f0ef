"""allauth's forms, with labels in the style of our pages and no placeholder that repeats a label."""

from typing import Any, ClassVar

from allauth.account.forms import ChangePasswordForm, LoginForm


class LabelledFieldsMixin:
    LABELS: ClassVar[dict[str, str]] = {}
    fields: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            field.label = self.LABELS.get(name, field.label)
            field.widget.attrs.pop("placeholder", None)


class SignInForm(LabelledFieldsMixin, LoginForm):
    LABELS: ClassVar[dict[str, str]] = {"remember": "Keep me signed in"}


class PasswordForm(LabelledFieldsMixin, ChangePasswordForm):
    LABELS: ClassVar[dict[str, str]] = {
        "oldpassword": "Current password",
        "password1": "New password",
        "password2": "Confirm new password",
    }
