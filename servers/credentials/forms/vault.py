"""Credentials of the vault that a new server may be given: chosen by name, never entered here."""

from collections.abc import Sequence
from typing import Any, cast

from django import forms


class VaultForm(forms.Form):
    """`offers`: rows with `uid`, `name`, `kind` and `place`, as `servers.credentials.vault.offers` reads them."""

    credentials = forms.MultipleChoiceField(
        required=False,
        error_messages={"invalid_choice": "A selected credential is no longer available. Check the list."},
    )

    def __init__(self, data: Any = None, *, offers: Sequence[Any]) -> None:
        super().__init__(data)
        self.offers = offers
        cast("forms.MultipleChoiceField", self.fields["credentials"]).choices = [
            (offer.uid, offer.name) for offer in offers
        ]

    @property
    def chosen(self) -> list[str]:
        """uids; before and after is_valid()."""
        return list(self["credentials"].value() or ())
