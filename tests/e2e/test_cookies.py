"""A person signs in and out over http on loopback with a cookie jar that plays Safari. Here, because the product of the
browser tests runs anyway."""

import pytest

from tests.mcpadmin.test_cookies import visitor, walk_in_and_out
from tests.tools.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.up]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_browser_that_takes_no_secure_cookie_over_http_signs_in_and_out_on_loopback(stack: Stack, host: str) -> None:
    with visitor(stack.base_url.replace("127.0.0.1", host)) as browser:
        assert {cookie.secure for cookie in walk_in_and_out(browser)} == {False}
