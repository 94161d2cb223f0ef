"""Template tags for a server's package."""

from django import template

from servers.models import Server
from servers.packages import page
from servers.packages.page import PackageHead

register = template.Library()


@register.simple_tag
def package_of(server: Server) -> PackageHead | None:
    return page.head(server)


@register.filter
def short_hash(integrity: str) -> str:
    """`sha512-SWsVtH/0vULS…`: enough to recognize a hash."""
    return integrity if len(integrity) <= 30 else f"{integrity[:26]}…"
