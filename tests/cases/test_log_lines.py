"""What the processes of the service write into their log."""

from __future__ import annotations

import logging
import sys

from policy.server.interpreter import OneLine


def test_a_message_is_one_line_whatever_it_repeats() -> None:
    """No name can add a line of its own, or a control sequence for a terminal."""
    formatter = OneLine("%(levelname)s %(name)s: %(message)s")
    try:
        raise ValueError("what was not foreseen")
    except ValueError:
        error = sys.exc_info()
    names = ("shop/web\nERROR policy.server: forged", "\x1b[31mred")
    told = "no calls for `%s` are decided: %s"
    record = logging.LogRecord("policy.server", logging.WARNING, "", 1, told, names, error)
    first, *others = formatter.format(record).splitlines()
    assert first == (
        "WARNING policy.server: no calls for `shop/web\\nERROR policy.server: forged` are decided:"
        " \\x1b[31mred"
    )
    assert (others[0], others[-1]) == (
        "Traceback (most recent call last):",
        "ValueError: what was not foreseen",
    )
