"""URI templates follow RFC 6570, list the variables for the form, and refuse what is not a template."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.schemas.uri_template import BrokenTemplate, Variable, expand, variables

# RFC 6570, sections 1.2 and 3.2: one row for each operator and level.
VALUES = {
    "var": "value",
    "hello": "Hello World!",
    "half": "50%",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "empty": "",
    "x": "1024",
    "y": "768",
    "v": "6",
    "who": "fred",
    "base": "http://example.com/home/",
}
EXPANSIONS = [
    ("{var}", "value"),
    ("{hello}", "Hello%20World%21"),
    ("{half}", "50%25"),
    ("O{empty}X", "OX"),
    ("O{undef}X", "OX"),
    ("{x,hello,y}", "1024,Hello%20World%21,768"),
    ("{var:3}", "val"),
    ("{list}", "red,green,blue"),
    ("{list*}", "red,green,blue"),
    ("{keys*}", "semi=%3B,dot=.,comma=%2C"),
    ("{+path}/here", "/foo/bar/here"),
    ("{base}index", "http%3A%2F%2Fexample.com%2Fhome%2Findex"),
    ("{+path:6}/here", "/foo/b/here"),
    ("{#path,x}/here", "#/foo/bar,1024/here"),
    ("X{.var:3}", "X.val"),
    ("X{.list*}", "X.red.green.blue"),
    ("{/var,x}/here", "/value/1024/here"),
    ("{/list*,path:4}", "/red/green/blue/%2Ffoo"),
    ("{;v,empty,who}", ";v=6;empty;who=fred"),
    ("{?x,y,empty}", "?x=1024&y=768&empty="),
    ("{?x,y,undef}", "?x=1024&y=768"),
    ("{?list*}", "?list=red&list=green&list=blue"),
    ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
    ("{&var:3}", "&var=val"),
]


@pytest.mark.parametrize(("template", "uri"), EXPANSIONS, ids=[template for template, _ in EXPANSIONS])
def test_an_example_of_the_rfc_expands_as_the_rfc_says(template: str, uri: str) -> None:
    assert expand(template, VALUES) == uri


def test_the_variables_come_in_order_each_once_with_what_a_form_has_to_know() -> None:
    assert variables("db://{+host}/{table}{/row*}{?limit,q:20}{&table}") == [
        Variable("host", "+"),
        Variable("table"),
        Variable("row", "/", explode=True),
        Variable("limit", "?"),
        Variable("q", "?", prefix=20),
    ]


def test_only_a_variable_whose_absence_leaves_a_whole_uri_may_be_absent() -> None:
    absent = {variable.name: variable.may_be_absent for variable in variables("x://{a}/{+b}{.c}{/d}{;e}{?f}{&g}{#h}")}
    assert absent == dict(zip("abcdefgh", [False] * 4 + [True] * 4, strict=True))


def test_a_template_without_variables_stays_as_it_is() -> None:
    assert variables("file:///etc/motd") == []
    assert expand("file:///etc/motd", {"unused": "x"}) == "file:///etc/motd"


def test_names_with_dots_hyphens_and_percent_signs_are_names() -> None:
    assert [variable.name for variable in variables("{user.name}{user-id}{a%20b}")] == ["user.name", "user-id", "a%20b"]
    assert expand("x/{user-id}", {"user-id": "ä/b"}) == "x/%C3%A4%2Fb"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("file:///{path", "no closing brace"),
        ("file:///path}", "no opening brace"),
        ("{a}}{", "no opening brace"),
        ("{{a}}", "no opening brace"),
        ("{{a}", "needs the name of a variable"),
        ("{}", "needs the name of a variable"),
        ("{?}", "needs the name of a variable"),
        ("{a,}", "needs the name of a variable"),
        ("{a b}", "needs the name of a variable"),
        ("{a*b}", "needs the name of a variable"),
        ("{.a.}", "needs the name of a variable"),
        ("{ä}", "needs the name of a variable"),
        ("{=a}", "reserved for future use"),
        ("{|a}", "reserved for future use"),
        ("{a:0}", "not a valid length"),
        ("{a:12345}", "not a valid length"),
        ("{a:b}", "not a valid length"),
        ("{a:3*}", "not a valid length"),
        ("{a}" * 65, "more than 64"),
        ("x" * 8193, "longer than 8192"),
    ],
)
def test_a_broken_template_is_refused_with_the_place_where_it_breaks(template: str, words: str) -> None:
    with pytest.raises(BrokenTemplate, match=words):
        variables(template)
    with pytest.raises(BrokenTemplate, match=words):
        expand(template, {"a": "1"})


def test_a_list_cannot_be_cut_to_a_prefix() -> None:
    with pytest.raises(ValueError, match="must be a string"):
        expand("{a:3}", {"a": ["x", "y"]})


@given(st.text(max_size=60))
def test_any_text_is_a_template_or_is_refused_and_never_anything_else(text: str) -> None:
    try:
        names = [variable.name for variable in variables(text)]
    except BrokenTemplate:
        return
    assert "{" not in expand(text, dict.fromkeys(names, "v"))


@given(st.text(max_size=40))
def test_a_simple_value_can_never_leave_its_place_in_the_uri(value: str) -> None:
    uri = expand("db://host/{table}/rows", {"table": value.encode("utf-8", "replace").decode()})
    assert uri.count("/") == 4
    assert not set(uri) & set('?#<>" \n')
