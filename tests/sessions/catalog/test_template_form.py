"""The form of a URI template: its fields, which of them are required, and the resulting URI."""

import pytest

from sessions.catalog.template_form import template_form


def test_a_template_has_a_field_for_each_variable_and_says_which_it_needs() -> None:
    form = template_form("db://{table}/rows{?limit,offset*}", {}, checked=False)
    assert [(field.name, field.required, field.many) for field in form.fields] == [
        ("table", True, False),
        ("limit", False, False),
        ("offset", False, True),
    ]
    assert (form.uri, form.errors) == ("", {})


def test_a_missing_value_is_an_error_only_once_it_is_checked() -> None:
    assert template_form("a://{x}", {"x": ""}, checked=True).errors == {"x": "Enter a value."}


def test_values_are_encoded_and_empty_ones_left_out() -> None:
    assert (
        template_form("a://{x}{?y,z}", {"x": "../b c", "y": "", "z": "é"}, checked=True).uri
        == "a://..%2Fb%20c?z=%C3%A9"
    )


def test_a_list_is_written_one_value_a_line() -> None:
    assert template_form("a://x{?tag*}", {"tag": "one\ntwo"}, checked=True).uri == "a://x?tag=one&tag=two"


@pytest.mark.parametrize("template", ["a://{", "a://}", "a://{=x}", "{" * 9_000], ids=range(4))
def test_a_broken_template_says_what_is_wrong_with_it(template: str) -> None:
    form = template_form(template, {"x": "1"}, checked=True)
    assert form.uri == ""
    assert "Invalid URI template" in form.problem


def test_a_uri_without_end_is_not_made() -> None:
    form = template_form("a://{x}", {"x": "é" * 3_000}, checked=True)
    assert (form.uri, "longer than" in form.problem) == ("", True)
