"""Names and URIs in bundles: what every client takes, means one thing, and can be read back."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.bundles import names, offers, uris

ALIASES = st.from_regex(r"[a-z][a-z0-9]{1,5}(-[a-z0-9]{1,5})?", fullmatch=True)
TARGETS = st.tuples(st.sampled_from(["11", "22"]), st.text(min_size=1, max_size=90))
URIS = st.one_of(
    st.from_regex(r"[a-z][a-z0-9+.-]{0,8}://[^\n]{0,30}", fullmatch=True),
    st.from_regex(r"[a-z][a-z0-9+.-]{0,8}:[^\n]{0,30}", fullmatch=True),
    st.text(max_size=30),
)


@given(ALIASES, ALIASES, st.lists(TARGETS, max_size=30, unique=True))
def test_each_name_fits_every_client_and_no_two_can_be_confused(
    one: str, two: str, targets: list[names.Target]
) -> None:
    taken: dict[str, names.Target] = {}
    for target in targets:
        name = names.assigned(one if target[0] == "11" else two, target, taken)
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,48}", name)
        assert taken.setdefault(names.skeleton(name), target) == target
    assert len(taken) == len(targets)


@given(ALIASES, TARGETS, st.lists(TARGETS, max_size=5))
def test_a_name_depends_on_no_other_tool_but_its_twin(
    alias: str, target: names.Target, others: list[names.Target]
) -> None:
    alone = names.assigned(alias, target, {})
    taken = {names.skeleton(names.assigned(alias, other, {})): other for other in others}
    if names.skeleton(alone) not in taken:
        assert names.assigned(alias, target, taken) == alone


def test_altered_names_of_one_server_stay_apart_and_the_unaltered_one_keeps_its_name() -> None:
    taken: dict[str, names.Target] = {}
    found = []
    for original in ("a_b", "a.b", "a/b", "A_B", "x" * 60, "x" * 61):
        found.append(names.assigned("gh", ("11", original), taken))
        taken[names.skeleton(found[-1])] = ("11", original)
    assert found[0] == "gh__a_b"
    assert all(re.fullmatch(r"gh__.+_[a-z2-7]{6}", name) for name in found[1:])
    assert [len(name) for name in found[-2:]] == [48, 48]


def test_an_alias_is_short_and_proposed_so_that_none_looks_like_another() -> None:
    for wrong in ("a", "A1", "a_b", "1a", "a--b", "-a", "a-", "abcdefghijklm", "ab\n", "é1"):
        assert not names.ALIAS.match(wrong)
    taken: list[str] = []
    for slug in (
        "git-hub",
        "git-hub",
        "mail",
        "mall",
        "365",
        "x",
        "ünï",
        "a-very-long-server-name",
        "a-very-long-serv",
    ):
        taken.append(names.alias_from(slug, taken))
        assert names.ALIAS.match(taken[-1]), taken[-1]
    assert len({names.skeleton(one) for one in taken}) == len(taken)


@given(ALIASES, URIS)
def test_a_uri_can_be_read_back_and_keeps_its_scheme(alias: str, uri: str) -> None:
    outward = uris.exposed_uri(alias, uri)
    if uris.is_global(uri):
        assert outward == uri
        return
    assert uris.inward(outward) == (alias, uri)
    if "://" in uri and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", uri):
        assert outward.partition("://")[0] == uri.partition("://")[0]


@given(ALIASES, ALIASES, URIS)
def test_uris_of_two_members_never_meet(one: str, two: str, uri: str) -> None:
    assert one == two or uris.is_global(uri) or uris.exposed_uri(one, uri) != uris.exposed_uri(two, uri)


def test_a_bundle_in_a_bundle_and_an_expanded_template_can_be_read_back() -> None:
    twice = uris.exposed_uri("bb", uris.exposed_uri("aa", "test://x"))
    assert uris.inward(twice) == ("bb", "test://aa.mcp/x")
    template = uris.template_outward("aa", "test://t/{id}/data")
    assert template == "test://aa.mcp/t/{id}/data"
    assert uris.inward(template.replace("{id}", "7")) == ("aa", "test://t/7/data")
    assert uris.inward(str(uris.template_outward("aa", "s:{+x}")).replace("{+x}", "//y")) == ("aa", "s://y")
    assert uris.template_outward("aa", "{scheme}://x") is None
    assert uris.template_outward("aa", "https://x/{id}") == "https://x/{id}"


@pytest.mark.parametrize(
    ("uri", "readable"),
    [
        ("https://example.org", True),
        ("HTTPS://me@example.org:443/a b?c#d", True),
        ("https://[::1]/a", True),
        ("test://", True),
        ("https://", False),
        ("https:///", False),
        ("https://exa mple/x", False),
        ("https://:443/", False),
    ],
)
def test_a_shared_uri_without_a_host_is_one_that_clients_cannot_read(uri: str, readable: bool) -> None:
    assert uris.is_readable(uri) is readable


@given(st.text("ab_*?", max_size=7), st.text("ab_", max_size=4), st.text("ab_", max_size=5))
def test_what_remains_of_a_pattern_after_an_alias_matches_what_the_whole_matches(
    pattern: str, head: str, text: str
) -> None:
    found = names.remainders(pattern, head)
    assert any(fnmatchcase(text, one) for one in found) == fnmatchcase(head + text, pattern)


@given(
    st.lists(st.sampled_from(["*", "a*", "!a*", "b", "!b", "!*"]), max_size=4),
    st.sets(st.sampled_from("abc[!"), max_size=5),
)
def test_what_is_ticked_is_what_is_offered(patterns: list[str], ticked: set[str]) -> None:
    known = ["a", "b", "c", "[", "!"]
    found = offers.chosen(patterns, known, ticked)
    assert {name for name in known if offers.offers(found, name)} == ticked


def test_hiding_one_tool_still_offers_those_that_come_later() -> None:
    found = offers.chosen(["*"], ["a", "b"], {"a"})
    assert found == ["*", "!b"]
    assert offers.offers(found, "new")
    assert offers.chosen(found, ["a", "b"], {"a", "b"}) == ["*"]


def test_ticking_one_tool_of_an_excluded_pattern_keeps_the_rest_and_what_comes_later_excluded() -> None:
    found = offers.chosen(["*", "!drop_*"], ["drop_a", "drop_b", "read"], {"drop_a", "read"})
    assert [offers.offers(found, name) for name in ("drop_a", "drop_b", "drop_new", "read")] == [
        True,
        False,
        False,
        True,
    ]
    found = offers.chosen(found, ["drop_a", "drop_b", "read"], {"read"})
    assert [offers.offers(found, name) for name in ("drop_a", "drop_new", "read")] == [False, False, True]
