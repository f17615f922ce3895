"""What the processes of the service write into their log."""

from __future__ import annotations

import logging
import sys

from policy.server.interpreter import OneLine


def test_a_message_is_one_line_whatever_it_repeats() -> None:
    """No name can add a line of its own, or a control sequence for a terminal."""
    try:
        raise ValueError("what was not foreseen")
    except ValueError:
        error = sys.exc_info()
    names = ("shop/web\nERROR policy.server: forged", "\x1b[31mred")
    told = "no calls for `%s` are decided: %s"
    record = logging.LogRecord("policy.server", logging.WARNING, "", 1, told, names, error)
    record.created, record.msecs = 1_764_362_096.25, 250.0
    first, *others = OneLine().format(record).splitlines()
    assert first == (
        "2025-11-28T20:34:56.250Z WARNING policy.server: no calls for"
        " `shop/web\\nERROR policy.server: forged` are decided: \\x1b[31mred"
    )
    assert (others[0], others[-1]) == (
        "Traceback (most recent call last):",
        "ValueError: what was not foreseen",
    )
