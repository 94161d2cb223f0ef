"""Choices with a thousand entries. Django renders a template for each option, and its model fields read whole rows: a
form that offered 1,000 servers took 55 ms of processor time. These write the options as text and read names only."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from django import forms
from django.db.models import QuerySet
from django.forms.models import ModelChoiceIterator
from django.forms.utils import flatatt
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from servers.kit.visible import visible_html, visible_text
from servers.models import Server

#: a bound for the page, far above what an instance has
MOST_OFFERED: Final = 10_000
_FILTERED_FROM: Final = 12


def options_html(choices: Iterable[Any], chosen: set[str]) -> SafeString:
    """`choices` as in a Django field; a label that is a list makes a group."""
    return mark_safe("".join(_options(choices, chosen)))  # noqa: S308  # _options escapes


def _option(value: Any, label: Any, chosen: set[str]) -> str:
    selected = " selected" if str(value) in chosen else ""
    return f'<option value="{escape(value)}"{selected}>{escape(visible_text(str(label)))}</option>\n'


def _options(choices: Iterable[Any], chosen: set[str]) -> Iterator[str]:
    for value, label in choices:
        if isinstance(label, list | tuple):
            yield f'<optgroup label="{escape(value)}">\n'
            yield from _options(label, chosen)
            yield "</optgroup>\n"
        else:
            yield _option(value, label, chosen)


class LongSelect(forms.Select):
    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        given: dict[str, Any] = self.build_attrs(self.attrs, {"name": name, **(attrs or {})})
        if self.allow_multiple_selected:
            given["multiple"] = True
        return format_html(
            "<select{}>\n{}</select>", flatatt(given), options_html(self.choices, set(self.format_value(value)))
        )


class LongSelectMultiple(LongSelect, forms.SelectMultiple):
    """If there are many, a field above filters them. The page needs js/list-filter.js for it."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        select = super().render(name, value, attrs, renderer)
        if select.count("<option ") <= _FILTERED_FROM:
            return select
        return format_html(
            '<div class="mb10" data-filter-box hidden><input class="form-control" type="search" autocomplete="off" '
            'spellcheck="false" placeholder="Filter by name" aria-label="Filter by name" data-filter-list="#{}" '
            'data-filter-entries="option"></div>{}',
            (attrs or {}).get("id", ""),
            select,
        )


class LongCheckList(forms.CheckboxSelectMultiple):
    """A checkbox for each choice."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        chosen = set(self.format_value(value))
        given = flatatt({"type": "checkbox", "name": name, **self.attrs})
        boxes = (
            f'<label class="form-check"><input{given} value="{escape(key)}"'
            f"{' checked' if str(key) in chosen else ''}> <span>{visible_html(str(label))}</span></label>\n"
            for key, label in self.choices
        )
        return mark_safe("".join(boxes))  # noqa: S308  # flatatt, escape and visible_html escape


class _Names(ModelChoiceIterator):
    """Keys and names of servers, by name."""

    def __iter__(self) -> Iterator[Any]:
        field: Any = self.field
        if field.empty_label is not None:
            yield "", field.empty_label
        rows = self.queryset.order_by("name", "pk").values_list(field.to_field_name or "pk", "name")
        yield from rows[:MOST_OFFERED]


class ServerField(forms.ModelChoiceField):
    """One server. `offer` says which ones: nothing is offered before."""

    iterator = _Names
    widget = LongSelect(attrs={"class": "form-select"})

    def __init__(self, *, to_field_name: str = "uid", **kwargs: Any) -> None:
        super().__init__(queryset=Server.objects.none(), to_field_name=to_field_name, **kwargs)


class ServersField(forms.ModelMultipleChoiceField):
    """Any number of servers, by name. `offer` says which ones: nothing is offered before."""

    iterator = _Names
    widget = LongSelectMultiple(attrs={"class": "form-control", "size": 6})

    def __init__(self, *, to_field_name: str = "uid", **kwargs: Any) -> None:
        super().__init__(queryset=Server.objects.none(), to_field_name=to_field_name, **kwargs)


def offer(form: forms.BaseForm, name: str, servers: QuerySet[Server]) -> None:
    field: Any = form.fields[name]
    field.queryset = servers.order_by("name", "pk")
