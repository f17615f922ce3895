"""How texts come to stand on pages."""

from __future__ import annotations

import pytest

from policy.server.pages.rendering import TEMPLATES


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("no decision `3`", "no decision <code>3</code>"),
        ("`a` and `b`, or c", "<code>a</code> and <code>b</code>, or c"),
        ("none at all", "none at all"),
        ("there is no pod `<b>&`", "there is no pod <code>&lt;b&gt;&amp;</code>"),
        ("<b> of `x`", "&lt;b&gt; of <code>x</code>"),
        ("no pod `two\nlines\u202e`", "no pod <code>two\\nlines\\u202e</code>"),
        ("no pod `a`b`", "no pod `a`b`"),  # a name with a backquote: where it ends is not known
    ],
)
def test_code_in_sentences_is_set_as_code(text: str, markup: str) -> None:
    """Whatever it is, it stays text."""
    page = TEMPLATES.from_string("{{ text|with_code }}")
    assert page.render(text=text) == markup
