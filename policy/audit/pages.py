"""What self-contained pages share: the template engine, and how numbers and times are shown.

Every text of the data is escaped by the template engine, and shows its control and direction
characters. A page makes no request: no script, no font, no picture from elsewhere.
"""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from policy.cluster import times
from policy.text.printable import printable
from policy.text.words import duration, grouped


def environment(*packages: str) -> Environment:
    """Templates of the packages, in this order, and of this one: `compare.css` is common to all."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*packages, "policy.audit")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    made.filters |= {"grouped": _grouped, "duration": _duration, "instant": times.to_text}
    return made


def _grouped(value: int) -> Markup:
    """A number that no line break tears apart; it holds digits and spaces only."""
    return Markup(grouped(value).replace(" ", "\N{NARROW NO-BREAK SPACE}"))


def _duration(seconds: int) -> Markup:
    """Digits, units and spaces only."""
    return Markup(duration(seconds).replace(" ", "\N{NO-BREAK SPACE}"))
