"""The command `policy`: one file per command group, imported when it is used."""

from __future__ import annotations

from collections.abc import Sequence

from policy.cli.exits import Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and end the process with one of the codes of `exits`."""
    try:
        from policy.garbage import collect_seldom

        collect_seldom()  # before anything is loaded: that makes many objects, and no garbage
        from policy.cli import streams
        from policy.cli.app import run

        streams.occupy()
        streams.guard()  # also for what Python says of an error that was not caught
        status = run(arguments)
    except KeyboardInterrupt:  # while the program itself was loaded, or a second one
        status = Exit.INTERRUPTED
    raise SystemExit(status)
