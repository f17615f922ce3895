"""What the process's exit status means. The numbers are part of the interface."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses of every command."""

    OK = 0
    ERROR = 1
    USAGE = 2
    UNDECIDED = 3
    UNPROVED = 4
    DIFFERS = 5
    LEDGER = 6
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """The line of the documentation."""
        return _MEANINGS[self]


_MEANINGS = {
    Exit.OK: "The command did what it was asked to do. A decision without preemption is one too.",
    Exit.ERROR: (
        "Something in the input, the rule files or the database is wrong; standard error says"
        " what, where and what to do. Or the output could not be written; the work is done all the"
        " same. `conform`, `rules lint`, `rules test` and `db check` also end"
        " so where they found what they look for."
    ),
    Exit.USAGE: "The command line is wrong, or an option means nothing beside the others.",
    Exit.UNDECIDED: (
        "`run`: decisions ended with outcome `error`; they are recorded with their message, and"
        " all other pods were decided."
    ),
    Exit.UNPROVED: (
        "`rules prove`: no claim is refuted, but not every one is proved: the solver gave up, or a"
        " claim is proved only where budgets count the same."
    ),
    Exit.DIFFERS: (
        "`replay`: a decision that was made again differs from the recorded one. `rules prove`: a"
        " claim is refuted."
    ),
    Exit.LEDGER: "`audit verify`: the record is not what was written.",
    Exit.INTERRUPTED: "Interrupted (Ctrl-C). What was committed before stays.",
}
