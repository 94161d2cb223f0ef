"""Texts that try to run, load or hide something once they are rendered as Markdown."""

from typing import Any

_RUN = "document.documentElement.dataset.ran=1"
_HTML = [
    "<script>{}</script>", "<img src=x onerror={}>", "<svg onload={}>", "<svg><animate onbegin={} attributeName=x>",
    "<iframe srcdoc='<script>parent.{}</script>'>", "<a href=javascript:{}>a</a>", "<body onload={}>",
    "<details open ontoggle={}>", "<math><mtext><table><mglyph><style><img src=x onerror={}>", "<video><source onerror={}>",
    "<input autofocus onfocus={}>", "<object data='javascript:{}'>", "<base href='javascript:{}//'>",
    "<form action=javascript:{}><button>b</button></form>", "<meta http-equiv=refresh content='0;javascript:{}'>",
    "<style>*{{background:url(javascript:{})}}</style>", "<noscript><p title='</noscript><img src=x onerror={}>'>",
    "<xmp><img src=x onerror={}></xmp>", "<!--><img src=x onerror={}>-->", "<![CDATA[><img src=x onerror={}>]]>",
]  # fmt: skip
_LINKS = [
    "javascript:{}", "JaVaScRiPt:{}", "java&#115;cript:{}", "javascript&colon;{}", " javascript:{}", "\x01javascript:{}",
    "java\nscript:{}", "vbscript:{}", "data:text/html,<script>{}</script>", "data:image/svg+xml,<svg onload={}>",
    "file:///etc/passwd", "//evil.example/{}", "https:{}", "blob:{}", "about:blank#{}", "view-source:{}",
    "https://a.example/\" onmouseover=\"{}", "https://a.example/' onfocus='{}", "https://a.example/><img/src=x onerror={}>",
]  # fmt: skip
_AROUND = [
    "{}",
    "# {}",
    "- {}\n- {}",
    "> {}",
    "| a |\n|---|\n| {} |",
    "```{}\n{}\n```",
    "`{}`",
    "**{}**",
    "&lt;{}",
    "\\{}",
]


def texts() -> list[str]:
    html = [item.format(_RUN) for item in _HTML]
    links = [item.format(_RUN) for item in _LINKS]
    around = [shape.replace("{}", item) for item in html for shape in _AROUND]
    linked = [form % item for item in links for form in (
        "[a](%s)", "[a](<%s>)", "![a](%s)", "<%s>", "[a]\n\n[a]: %s", '[a](https://b.example "%s")', "[![a](%s)](https://b.example)",
    )]  # fmt: skip
    return around + linked


def context() -> dict[str, Any]:
    return {"hostile_texts": [f"**rendered** text\n\n{text}" for text in texts()]}
