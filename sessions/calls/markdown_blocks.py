"""Which texts in a result are shown as rendered Markdown, within one limit for the whole card."""

from collections.abc import Iterable
from dataclasses import replace

from django.utils.safestring import mark_safe

from servers.kit.markdown import BYTES, looks_like_markdown, render_markdown
from sessions.calls.blocks import Block

_DECLARED = ("text/markdown", "text/x-markdown")
TOO_LARGE = "Shown as source: a result renders at most 64 kB of Markdown."
NOT_RENDERED = "Shown as source: this Markdown is nested too deeply or takes too long to render."


def with_markdown(blocks: Iterable[Block]) -> list[Block]:
    left = BYTES
    shown = []
    for block in blocks:
        if block.kind == "text" and (block.mime.lower().startswith(_DECLARED) or looks_like_markdown(block.text)):
            size = len(block.text.encode("utf-8", "surrogatepass"))
            if block.cut or size > left:
                block = replace(block, remark=TOO_LARGE)
            elif markup := render_markdown(block.text):
                left -= size
                block = replace(block, rendered=mark_safe(markup))  # noqa: S308  # sanitized by nh3
            elif block.text.strip():
                left -= size  # the time was spent anyway
                block = replace(block, remark=NOT_RENDERED)
        shown.append(block)
    return shown
