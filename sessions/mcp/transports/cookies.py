"""The cookies of one connection. A load balancer in front of several nodes uses one to say which node has the session.

Only requests to the server itself carry them, and they end with the connection. Nothing else keeps cookies: no sign-in,
metadata document, icon or webhook.
"""

from collections.abc import Callable, Mapping
from typing import Final

import httpx

#: number of cookies kept, bytes of one with its attributes, and bytes in a request
_KEPT: Final = 20
_LINE_BYTES: Final = 4 * 1024
_SENT_BYTES: Final = 8 * 1024
#: number of values that are masked wherever they occur: some load balancers send a new one with each answer
_HIDDEN: Final = 50
#: shorter values are words, not ids
_ID_CHARS: Final = 10


class Cookies:
    """`hide` is called with the values, which may be secrets."""

    def __init__(self, hide: Callable[[str], None]) -> None:
        self._hide = hide
        self._hidden: set[str] = set()
        self._kept = httpx.Cookies()

    def keep(self, response: httpx.Response, url: httpx.URL) -> None:
        """Keep the cookies that the server sets, within bounds."""
        lines = response.headers.get_list("set-cookie")
        for line in lines:
            if len(line) <= _LINE_BYTES and line.isascii() and line.isprintable() and self._has_room(_name(line)):
                one = httpx.Response(200, headers=[("Set-Cookie", line)], request=httpx.Request("GET", url))
                self._kept.extract_cookies(one)
        if lines:
            self._hide_values()

    def _has_room(self, name: str) -> bool:
        """Whether a cookie can be kept. When full, it may only replace cookies of the same name."""
        jar = self._kept.jar
        if len(jar) < _KEPT:
            return True
        replaced = [cookie for cookie in jar if cookie.name == name]
        for cookie in replaced:
            jar.clear(cookie.domain, cookie.path, cookie.name)
        return bool(replaced)

    def _hide_values(self) -> None:
        for value in {cookie.value or "" for cookie in self._kept.jar} - self._hidden:
            if len(value) >= _ID_CHARS and len(self._hidden) < _HIDDEN:
                self._hidden.add(value)
                self._hide(value)

    def added(self, headers: Mapping[str, str], url: httpx.URL) -> Mapping[str, str]:
        """The headers with the cookies for this URL. Cookies that the headers already set stay unchanged."""
        if not self._kept:
            return headers
        request = httpx.Request("GET", url)
        self._kept.set_cookie_header(request)
        own = next((name for name in headers if name.lower() == "cookie"), "Cookie")
        pairs = [pair.strip() for pair in headers.get(own, "").split(";") if pair.strip()]
        names = {_name(pair) for pair in pairs}
        size = 0
        for pair in request.headers.get("Cookie", "").split("; "):
            size += len(pair)
            if pair and _name(pair) not in names and size <= _SENT_BYTES:
                pairs.append(pair)
        return {**headers, own: "; ".join(pairs)} if pairs else headers


def _name(pair: str) -> str:
    return pair.partition("=")[0].strip()
