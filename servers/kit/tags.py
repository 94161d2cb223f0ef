"""The page kit's tags and filters. Everything that a server sent goes through `visible` or `json_tree`."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

from django import template
from django.conf import settings
from django.forms import BoundField, CheckboxInput, RadioSelect, Select, Textarea, Widget
from django.http import HttpRequest
from django.template import Context
from django.template.base import Node, Parser, TextNode, Token
from django.templatetags.static import static
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from servers import access
from servers.enums import TransportKind
from servers.kit.choices import LongSelect, options_html
from servers.kit.icons import icon_body
from servers.kit.json_table import table_of
from servers.kit.json_tree import NODES, Tree
from servers.kit.markdown import looks_like_markdown, render_markdown
from servers.kit.styles import BUNDLE, STYLES
from servers.kit.visible import visible_html, visible_text
from servers.kit.words import format_bytes, format_duration, format_elapsed, shortened
from servers.models import Server

register = template.Library()


@register.simple_tag
def icon(name: str, label: str = "", css: str = "") -> SafeString:
    """Decorative without a label; with one it is an image with that name."""
    return _icon(str(name), label, css) if label else _decorative_icon(str(name), css)


_compile_icon = register.tags["icon"]


@register.tag("icon")
def icon_node(parser: Parser, token: Token) -> Node:
    """Nearly all icons have a constant name: these become text when the template is compiled."""
    node = _compile_icon(parser, token)
    is_text = node.target_var is None and not any(given.is_var for given in (*node.args, *node.kwargs.values()))
    return TextNode(node.render(Context())) if is_text else node


def _icon(name: str, label: str, css: str) -> SafeString:
    role = format_html('role="img" aria-label="{}"', label) if label else mark_safe('aria-hidden="true"')
    body = mark_safe(icon_body(name))  # noqa: S308 - vendored SVG, pinned by hash
    return format_html('<svg class="{}" viewBox="0 0 24 24" {}>{}</svg>', f"i {css}".strip(), role, body)


@cache
def _decorative_icon(name: str, css: str) -> SafeString:
    """Some hundred of them exist, and a card alone has five."""
    return _icon(name, "", css)


#: as in static/js/console.js
BLOCK_ROWS = 50


@register.filter
def in_blocks(rows: Sequence[object]) -> list[Sequence[object]]:
    """Split a long list into blocks, so that the browser can skip those out of view. One empty block for no rows."""
    return [rows[start : start + BLOCK_ROWS] for start in range(0, max(len(rows), 1), BLOCK_ROWS)]


@register.simple_tag
def styles() -> SafeString:
    """Links to the style sheets of every page: a single one if static files are collected."""
    found = [BUNDLE] if settings.STATIC_COLLECTED else STYLES
    return format_html_join("\n", '<link rel="stylesheet" href="{}">', ((static(name),) for name in found))


@register.simple_tag
def form_of(row: Any) -> SafeString:
    """The hidden field of a form at a short name: the form acts on this server or bundle (`access.server_of_form`), even if
    another one has its short name by then. Empty without a row."""
    return format_html('<input type="hidden" name="uid" value="{}">', row.uid) if row else SafeString("")


@register.simple_tag
def uuid_url(name: str, uid: UUID) -> SafeString:
    """`url` for a page of one row, at a tenth of its cost: the card of a call has three of them."""
    before, after = _url_parts(name)
    return mark_safe(f"{before}{uid}{after}")  # noqa: S308  # digits and dashes in a URL of our own


@cache
def _url_parts(name: str) -> tuple[str, str]:
    any_uid = UUID(int=0)
    before, _, after = reverse(name, args=[any_uid]).partition(str(any_uid))
    return before, after


@register.simple_tag
def slug_url(name: str, slug: str) -> SafeString:
    """As `uuid_url`, for a page of one server: a list has several of each."""
    before, after = _slug_url_parts(name)
    return before + escape(slug) + after


@cache
def _slug_url_parts(name: str) -> tuple[SafeString, SafeString]:
    before, _, after = reverse(name, args=["any-server"]).partition("any-server")
    return mark_safe(before), mark_safe(after)  # noqa: S308  # of a URL of our own


@register.simple_tag(takes_context=True)
def settings_or_tools_url(context: Context, slug: str) -> SafeString:
    """The link of a server's name on a page about its settings: to the settings, or to its tools for people who may not
    open those."""
    changes = access.may(context["request"].user, "change")
    return slug_url("servers:settings" if changes else "servers:tools", slug)


@register.simple_tag
def timestamp(moment: datetime | str | None, form: str = "relative") -> SafeString:
    """UTC from the server; time.js rewrites it in the reader's zone. `form`: relative, exact, minute, full (with the
    zone, for a time that is passed on), time or date.

    Never relative within a live region: a screen reader would repeat the region whenever the text changes."""
    at = parse_datetime(moment) if isinstance(moment, str) else moment
    if at is None:
        return mark_safe('<span class="dim">—</span>')
    at = at.astimezone(UTC)
    iso = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    words = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    return mark_safe(f'<time datetime="{iso}" data-time="{form}" title="{words}">{words}</time>')  # noqa: S308  # digits and our own words


@register.simple_tag
def permission_missing(permission: str) -> SafeString:
    """Shown instead of a button that this person may not use."""
    row = '<div class="runbar"><span class="dim" data-permission-missing>{}{}</span></div>'
    return format_html(row, icon("lock"), access.lacking(permission))


@register.simple_tag
def elapsed(since: datetime | str) -> SafeString:
    """How long something has been running; time.js counts on. `since`: a moment, or its ISO 8601 text."""
    moment = datetime.fromisoformat(since) if isinstance(since, str) else since
    seconds = max(0, int((timezone.now() - moment).total_seconds()))
    iso = moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return format_html('<time class="num" datetime="{}" data-elapsed>{}</time>', iso, format_elapsed(seconds))


@register.simple_tag
def duration_ms(milliseconds: float | None) -> str:
    return "—" if milliseconds is None else format_duration(float(milliseconds))


@register.filter
def number(value: Any) -> Any:
    """A count as people read it, 1409 -> 1,409. Numbers of calls and events (#1409) are identifiers and stay
    unchanged."""
    return f"{value:,}" if isinstance(value, int) else value


@register.simple_tag(name="bytes")
def bytes_tag(count: int | None) -> str:
    return "—" if count is None else format_bytes(int(count))


@register.simple_tag
def transport_name(server: Server, mcp_session: Any = None) -> str:
    """The transport as lists show it: the detected one, if the registration leaves it open."""
    found = mcp_session.transport if mcp_session and server.transport == TransportKind.AUTO_HTTP else ""
    return TransportKind(found or server.transport).short


@register.simple_tag(takes_context=True)
def query_with(context: Context, **changes: Any) -> str:
    """The current query string with some keys set; None or "" removes a key. Without the leading "?"."""
    request: HttpRequest = context["request"]
    query = request.GET.copy()
    for key, value in changes.items():
        if value is None or value == "":
            query.pop(key, None)
        else:
            query[key] = str(value)
    return query.urlencode()


_SMALL = 8  # nodes that need no tools
_COPIED = 300_000  # characters of JSON from which values are copied


@register.inclusion_tag("kit/_json.html")
def json_tree(value: Any, label: str = "JSON value", more_url: str = "", use_url: str = "") -> dict[str, Any]:
    """A tree with its tools, and a table beside it if the value is, or contains, a list of similar objects. `more_url`:
    see Tree; without it, a large value is cut. `use_url`: the URL that takes one of its values, to which `&at=` is
    added."""
    tree = Tree(more_url)
    markup = mark_safe(tree.render(value))  # noqa: S308 - all text in it went through visible_html
    table = table_of(value)
    tools = NODES - tree.left >= _SMALL
    source = json.dumps(value, default=str) if tools or table else ""
    return {
        "label": label,
        "tree": markup,
        "cut": tree.cut,
        "use_url": use_url,
        "tools": tools,
        "table": table,
        "rows": mark_safe("".join(table.body())) if table else "",  # noqa: S308 - escapes all text
        "source": source if len(source) <= _COPIED else "",
    }


@register.inclusion_tag("kit/_text.html")
def server_text(text: Any, css: str = "") -> dict[str, Any]:
    """Text from a server: rendered if it looks like Markdown, with its source one click away, otherwise unchanged."""
    source = "" if text is None else str(text)
    rendered = render_markdown(source) if looks_like_markdown(source) else None
    return {"rendered": mark_safe(rendered) if rendered else "", "source": source, "css": css}  # noqa: S308  # sanitised by nh3


@register.filter(is_safe=False)
def visible(value: Any) -> SafeString:
    """Escaped, with hidden characters marked. For element content; in an attribute use `visible_text`."""
    return mark_safe(visible_html("" if value is None else str(value)))  # noqa: S308 - visible_html escapes


@register.filter(name="visible_text", is_safe=False)
def visible_text_filter(value: Any) -> str:
    return visible_text("" if value is None else str(value))


@register.simple_tag
def short_uri(uri: str, most: int = 80) -> SafeString:
    """A long URI without its middle; the tooltip and screen readers have all of it."""
    if len(uri) <= most:
        return mark_safe(visible_html(uri))  # noqa: S308 - visible_html escapes
    whole, short = visible_text(uri), mark_safe(visible_html(shortened(uri, most)))  # noqa: S308 - visible_html escapes
    return format_html(
        '<span title="{}"><span aria-hidden="true">{}</span><span class="vh">{}</span></span>', whole, short, whole
    )


@register.inclusion_tag("shell/_nav_item.html", takes_context=True)
def nav_item(context: Context, url_name: str, label: str, icon_name: str, section: str = "") -> dict[str, Any]:
    """A link in the side bar; nothing if the page does not exist in this installation. `section`: the value of `nav` on
    its pages, if that is not the namespace of its URL."""
    try:
        url = reverse(url_name)
    except NoReverseMatch:
        return {"url": ""}
    section = section or url_name.partition(":")[0]
    current = _is_current(context, section)
    return {"url": url, "label": label, "icon": icon_name, "section": section, "current": current}


@register.inclusion_tag("kit/_field.html")
def field(bound: BoundField, help_text: str = "", unit: str = "") -> dict[str, Any]:
    """Label (with the unit), control, help and errors of one form field, tied together for assistive technology.
    Includes what the page showed, if the form asks for it (`show_hidden_initial`)."""
    widget = bound.field.widget
    css = _WIDGET_CLASSES.get(type(widget), "form-control")
    if bound.errors:
        css += " is-bad"
    control = bound.as_widget(attrs={"class": f"{widget.attrs.get('class', '')} {css}".strip()})
    if bound.field.show_hidden_initial:
        control = bound.as_hidden(only_initial=True) + control
    return {
        "bound": bound,
        "control": control,
        "help": help_text or bound.help_text,
        "unit": unit,
        "is_check": isinstance(widget, CheckboxInput),
        "is_group": isinstance(widget, RadioSelect),
        "is_password": getattr(widget, "input_type", "") == "password",
    }


@register.simple_tag
def options(choices: Sequence[tuple[str, Any]], current: str) -> SafeString:
    """The options of a select, grouped or not: for lists that may be long."""
    return options_html(choices, {current})


_WIDGET_CLASSES: dict[type[Widget], str] = {
    CheckboxInput: "form-check-input",
    Select: "form-select",
    LongSelect: "form-select",
    Textarea: "form-control mono",
}


def _is_current(context: Context, section: str) -> bool:
    """Determined by the page's `nav` variable, or else by the route of the request."""
    named = context.get("nav")
    if named:
        return bool(named == section)
    match = getattr(context.get("request"), "resolver_match", None)
    return match is not None and section in {match.namespace, match.url_name}
