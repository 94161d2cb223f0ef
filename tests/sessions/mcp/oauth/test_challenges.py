"""Challenges are parsed as RFC 9110 defines them, and as real servers get them wrong."""

import time

import pytest

from sessions.mcp.oauth.challenges import Demand, demanded, read

URL = "https://mcp.example/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('Bearer resource_metadata="https://a/b", scope="x y"', Demand("bearer", ("https://a/b",), ("x", "y"))),
        ("bEaReR SCOPE=x", Demand("bearer", (), ("x",))),
        ("Bearer", Demand("bearer")),
        ('Bearer scope = "x" , error="insufficient_scope"', Demand("bearer", (), ("x",), "insufficient_scope")),
        (
            'Bearer error_description="commas, and = signs, Basic realm=\\"no\\"", scope="x"',
            Demand("bearer", (), ("x",)),
        ),
        ('Basic realm="r", Bearer scope="x"', Demand("bearer", (), ("x",))),
        ('Bearer scope="x", Basic realm="r"', Demand("bearer", (), ("x",))),
        ('Negotiate a87421000492aa874209af8bc028==, Bearer scope="x"', Demand("bearer", (), ("x",))),
        (",, Bearer ,, scope=x,,", Demand("bearer", (), ("x",))),
        (
            'Bearer resource_metadata="https://a", resource_metadata="https://b"',
            Demand("bearer", ("https://a", "https://b")),
        ),
        ("Bearer resource_metadata=https://a/b?c, scope=x", Demand("bearer", ("https://a/b?c",), ("x",))),
        ('Bearer scope="a", DPoP algs="ES256", error="use_dpop_nonce"', Demand("dpop", (), ("a",), "use_dpop_nonce")),
        ('DPoP error="invalid_token"', Demand("dpop", (), (), "invalid_token")),
        ('Bearer scope="x', Demand("bearer")),
        ('Bearer scope="a a b\x01 c"', Demand("bearer", (), ("a", "c"))),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_line_says_what_is_wanted(line: str, expected: Demand) -> None:
    assert demanded([line]) == expected


def test_several_lines_are_one_list_of_challenges() -> None:
    assert [one.scheme for one in read(['Basic realm="x"', 'Bearer scope="y"'])] == ["basic", "bearer"]


def test_a_refusal_without_a_challenge_is_one_all_the_same() -> None:
    assert demanded([]) == Demand()


def test_only_schemes_that_are_not_ours_are_not_answered() -> None:
    assert demanded(['Basic realm="x"', "Negotiate"]) is None


@pytest.mark.parametrize("junk", ["=" * 2000, '"' * 2000, "a=" * 1000, "\\" * 2000, ", " * 1000, 'a="' + "\\" * 1997])
def test_junk_is_read_in_no_time_and_says_nothing(junk: str) -> None:
    began = time.process_time()
    read([junk] * 8)
    assert time.process_time() - began < 2  # CPU time: a pattern that backtracks exponentially takes minutes
