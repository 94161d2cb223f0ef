"""Markdown from servers as sanitised HTML: CommonMark with tables, no HTML, no images, links to the web and mail only.

Three things keep a text from becoming more than text: the parser does not know HTML, each piece of text goes through
`marked_html`, and nh3 removes what our own renderer cannot have written.
"""

import re
import time
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from servers.kit.visible import marked_html, visible_text

BYTES = 64 * 1024
NESTING = 20
SECONDS = 0.4  # of this thread's own time, so that a busy machine renders the same
_LOOKED_AT = 8_000  # characters of a text that decide whether it is Markdown

#: A heading, a fence, a table's second line, a list of two items, a link, bold text or inline code in a sentence.
_BLOCKS = re.compile(
    r"^(?:#{1,6}[ \t]+\S|(?:```|~~~)|\|?[ \t]*:?-{3,}:?[ \t]*\|[ \t:|-]*$"
    r"|[ ]{0,3}(?:[-*+]|\d{1,9}[.)])[ \t]+\S[^\n]*\n(?:[ \t]*\n|[ \t]+\S[^\n]*\n)?[ ]{0,3}(?:[-*+]|\d{1,9}[.)])[ \t]+\S)",
    re.MULTILINE,
)
_INLINE = re.compile(
    r"\[[^\]\n]{1,300}\]\((?:https?://|mailto:)[^\s)]{1,2000}\)|(?<![\w*])\*\*[^\s*][^*\n]{0,300}\*\*(?![\w*])"
    r"|(?<![\w`])`[^`\n]{1,200}`(?![\w`])|(?<![\w*])\*[^\s*][^*\n]{0,200}[^\s*]\*(?![\w*])"
)
_TAGS = {
    "p", "strong", "em", "s", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "br", "div", "table", "thead", "tbody",
    "tr", "th", "td", "a", "span",
}  # fmt: skip
_CLASSES = {
    "p": {"md-h1", "md-h2", "md-h3"},
    "div": {"md-scroll"},
    "span": {"hid", "dim"},
    "th": {"md-center", "md-right"},
    "td": {"md-center", "md-right"},
}
_ATTRIBUTES = {
    "a": {"href"},
    "ol": {"start"},
    "span": {"title"},
    "pre": {"tabindex"},
    "div": {"tabindex", "role", "aria-label"},
}
_LANGUAGE = re.compile(r"[\w+#.-]{0,20}")  # of a fence; anything else after it is shown
_SCHEMES = {"http", "https", "mailto"}


def looks_like_markdown(text: str) -> bool:
    """Judged by the beginning of the text: headings, lists, fences, tables, links, emphasis. Plain text and logs do not
    count."""
    start = text[:_LOOKED_AT]
    return bool(_BLOCKS.search(start) or _INLINE.search(start))


def render_markdown(text: str, *, seconds: float = SECONDS) -> str | None:
    """None if it is too large, nested too deep or takes too long: then only the source is shown."""
    if len(text) > BYTES or len(text.encode("utf-8", "surrogatepass")) > BYTES:
        return None
    parser = _parser()
    env: dict[str, Any] = {"until": time.thread_time() + seconds}
    try:
        tokens = parser.parse(text, env)
        if any(token.level >= NESTING - 1 for token in tokens):  # the parser drops what is nested deeper
            return None
        markup = parser.renderer.render(tokens, parser.options, env)
        if env.get("references"):  # nothing may be in a text that only a model reads
            markup += '<p><span class="dim">Link definitions are in the source only.</span></p>'
    except _TooSlow:
        return None
    return nh3.clean(
        markup,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )


class _TooSlow(Exception):
    pass


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": NESTING}, renderer_cls=_Renderer)
    parser.enable(["table", "strikethrough"])
    # Assigned, as the library documents it for applications with rules of their own.
    parser.validateLink = _is_allowed  # type: ignore[method-assign]
    parser.normalizeLinkText = _as_written  # type: ignore[method-assign]
    parser.inline.ruler.before("text", "deadline", _check_time)
    parser.block.ruler.before("table", "deadline", _check_block_time, {"alt": []})
    return parser


def _check_time(state: Any, silent: bool) -> bool:
    if time.thread_time() > state.env["until"]:
        raise _TooSlow
    return False


def _check_block_time(state: Any, start: int, end: int, silent: bool) -> bool:
    return _check_time(state, silent)


def _as_written(link: str) -> str:
    return link


def _is_allowed(url: str) -> bool:
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return False
    return bool(parts.hostname) if parts.scheme in ("http", "https") else parts.scheme == "mailto"


class _Renderer(RendererHTML):
    """Writes what `_TAGS` lists and nothing else. A token of a kind that it does not know is shown as text."""

    def renderToken(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        if token.hidden:  # the paragraphs of a tight list
            return ""
        ending = "\n" if token.block else ""
        if token.nesting < 0:
            return f"</{token.tag}>{ending}"
        start = token.attrs.get("start")
        numbered = "" if start is None else f' start="{int(start)}"'
        return f"<{token.tag}{numbered}>{ending}"

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return marked_html(tokens[idx].content)

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<code>{marked_html(tokens[idx].content)}</code>"

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        info = tokens[idx].info.strip()
        more = f'<p><span class="dim">{marked_html(info)}</span></p>' if not _LANGUAGE.fullmatch(info) else ""
        return f'{more}<pre tabindex="0"><code>{marked_html(tokens[idx].content)}</code></pre>\n'

    fence = code_block

    def softbreak(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "\n"

    def hardbreak(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "<br>\n"

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A paragraph that looks like a heading: a server's text has no place in the outline of our page."""
        return f'<p class="md-h{min(3, int(tokens[idx].tag[1:]))}">'

    def heading_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</p>\n"

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="md-scroll" tabindex="0" role="region" aria-label="Table"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        align = str(tokens[idx].attrs.get("style") or "").removeprefix("text-align:")
        css = f' class="md-{align}"' if align in ("center", "right") else ""
        return f"<{tokens[idx].tag}{css}>"

    td_open = th_open

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        env["link"] = idx
        return f'<a href="{_attribute(str(tokens[idx].attrs.get("href") or ""))}">'

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        opened = env.pop("link")
        shown = "".join(_plain(token) for token in tokens[opened + 1 : idx])
        return f"</a>{_target(tokens[opened], 'href', shown)}"

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Images are never loaded: shows a link with the alternative text, or only that text inside another link."""
        href, alt = str(tokens[idx].attrs.get("src") or ""), _plain(tokens[idx])
        words = f"Image: {marked_html(alt)}" if alt else "Image"
        if "link" in env:
            return words
        return f'<a href="{_attribute(href)}">{words}</a>{_target(tokens[idx], "src", alt)}'


def _plain(token: Token) -> str:
    return "".join(map(_plain, token.children)) if token.children else token.content


def _target(token: Token, name: str, shown: str) -> str:
    """The target of a link, unless its text is that address; and its title, which browsers show too late."""
    href, title = str(token.attrs.get(name) or ""), str(token.attrs.get("title") or "")
    address = unquote(href)
    if shown.strip() in (href, address, address.removeprefix("mailto:")):
        place = ""
    else:
        parts = urlsplit(href)
        place = unquote(parts.path) if parts.scheme == "mailto" else parts.hostname or ""
    words = ": ".join(filter(None, (place, title)))
    return f' <span class="dim">({marked_html(words)})</span>' if words else ""


def _attribute(text: str) -> str:
    return visible_text(text).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
