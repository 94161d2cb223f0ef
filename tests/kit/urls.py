"""The kit without the product's pages: sample pages from tests/kit/pages and the real sign-in pages."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import engines
from django.urls import include, path
from django.views.decorators.http import require_POST

from servers.kit.words import session_look
from tests.kit import hostile_markup

PAGES = settings.BASE_DIR / "tests" / "kit" / "pages"
TREE = {
    "count": 37,
    "orders": [{"id": "ord_41F9", "state": "packed", "total": 412.5, "gift": False, "note": "pay\u202egnp.exe"}],
    "long": "lorem " * 200,
    "next_cursor": None,
}
MARKDOWN = """# Release notes

Version **2.1** of `orders`, see [the site](https://docs.example/orders) or <https://example.com>.

### Changes
- faster
- [ ] ![A chart](https://images.example/chart.png)

| id | state |
|---:|:-----:|
| 1 | packed |

```python
print("pay\u202egnp.exe")
```
> quoted
"""
QUESTION = "How satisfied are you with the overall quality of our service in 2026?"
#: needed spelling, a byte order mark, half an emoji sequence and a line end of Windows
MARKED = "\ufeffمی\u200cخواهم ℹ\ufe0f\r\n<b>\U000e0041\U000e0042"
ORDERS = {
    "count": 130,
    "orders": [
        {
            "id": 1000 - n,
            "state": "packed" if n % 2 else "sent",
            "note": "=1+1" if n == 0 else None,
            "lines": [{"sku": f"a/{n}"}],
        }
        | ({"gift": True, QUESTION: 4} if n % 3 else {})
        for n in range(130)
    ],
    "a/b~c'd\u202e": {"x": {"exact": 12345678901234567890}},
}
PILLS = [
    ("disconnected", "none"),
    ("connecting", "none"),
    ("initializing", "none"),
    ("ready", "none"),
    ("disconnecting", "none"),
    ("disconnected", "waiting_worker"),
    ("disconnected", "backing_off"),
    ("disconnected", "needs_auth"),
    ("disconnected", "incompatible"),
    ("disconnected", "paused"),
    ("disconnected", "failing"),
]


def sample(request: HttpRequest, name: str) -> HttpResponse:
    template = engines["django"].from_string((PAGES / f"{name}.html").read_text())
    context: dict[str, Any] = {
        "tree": TREE,
        "pills": [session_look(*pill) for pill in PILLS],
        "hostile": "<img src=x onerror=alert(1)>\u200b",
    }
    context |= {"markdown": MARKDOWN, "orders": ORDERS, "marked": MARKED} | (
        hostile_markup.context() if name == "hostile" else {}
    )
    return HttpResponse(template.render(context, request))


@login_not_required
def palette(request: HttpRequest) -> JsonResponse:
    found = {"kind": "Server", "label": "orders-api", "hint": "https://orders.example.internal/mcp", "url": "/servers/"}
    return JsonResponse({"results": [found] if request.GET.get("q", "") in "orders-api" else []})


@require_POST
def ticket(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"ticket": "test-ticket"})


def with_messages(request: HttpRequest) -> HttpResponse:
    messages.success(request, "orders-api registered")
    messages.error(request, "notion did not answer")
    return sample(request, "states")


@login_not_required
def forbidden(request: HttpRequest) -> HttpResponse:
    raise PermissionDenied


@login_not_required
def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("on purpose")


handler500 = "django.views.defaults.server_error"
urlpatterns = [
    path("", sample, {"name": "states"}, name="overview"),
    path("servers/", include(([path("", sample, {"name": "states"}, name="list")], "servers"))),
    path("audit/", include(([path("", sample, {"name": "rows"}, name="list")], "audit"))),
    path("explorer/", include(([path("", sample, {"name": "rows"}, name="page")], "explorer"))),
    path("account/", include(([path("", sample, {"name": "states"}, name="account")], "own"))),
    path("accounts/", include("allauth.urls")),
    path("palette/", palette, name="palette"),
    path("live/ticket/", ticket, name="live_ticket"),
    path("messages/", with_messages),
    path("forbidden/", forbidden),
    path("broken/", broken),
    path("pages/<str:name>/", sample),
]
