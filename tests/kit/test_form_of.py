"""A form at a short name says which server or bundle its page was opened for: another one may have that name since."""

import re
from pathlib import Path

TEMPLATES = Path(__file__).parents[2] / "templates"
_FORM = re.compile(r"<form\b.*?</form>", re.DOTALL)
_AT_A_SHORT_NAME = re.compile(r"{% url [^%]*(?<!saved\.)\b(?:server|bundle)\.slug\b")
#: the tag, the query of forms that scripts send, a form's own field, and a call that belongs to one server
_SAYS_WHICH = re.compile(r"{% form_of |uid={{|{{ form\.uid }}|line\.call\.uid")


def test_each_form_at_a_short_name_says_which_server_or_bundle_it_is_for() -> None:
    texts = {path.relative_to(TEMPLATES): path.read_text() for path in TEMPLATES.rglob("*.html")}
    assert [path for path, text in texts.items() if 'name="uid"' in text] == []
    forms = [(path, form) for path, text in texts.items() for form in _FORM.findall(text) if 'method="post"' in form]
    at_short_names = [(path, form) for path, form in forms if _AT_A_SHORT_NAME.search(form)]
    assert len(at_short_names) > 20
    assert [(path, form[:200]) for path, form in at_short_names if not _SAYS_WHICH.search(form)] == []
