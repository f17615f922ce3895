"""The tree of commands, and the outermost frame: known errors become messages, not tracebacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, cast

import click

from policy import __version__
from policy.cli.exits import Exit

COMMANDS: Final = {
    "import": "policy.cli.importing:command",
    "preempt": "policy.cli.preempt:command",
    "run": "policy.cli.run:command",
    "decisions": "policy.cli.decisions:command",
    "explain": "policy.cli.explain:command",
    "nominations": "policy.cli.nominations:command",
    "report": "policy.cli.report:group",
    "state": "policy.cli.state:group",
    "replay": "policy.cli.replay:command",
    "compare": "policy.cli.compare:command",
    "what-if": "policy.cli.what_if:command",
    "audit": "policy.cli.audit:group",
    "sql": "policy.cli.sql:command",
    "export": "policy.cli.export:command",
    "rules": "policy.cli.rules:group",
    "env": "policy.cli.env:group",
    "db": "policy.cli.db:group",
    "batch": "policy.cli.batch:group",
    "conform": "policy.cli.conform:command",
}
"""Name of each command, and where it lives: a new group is one file and one line here."""

HELP: Final = """\
Decide which pods are preempted, where and why, and keep every decision.

\b
Example:
  policy import cluster.json            # what `kubectl get ... -o json` printed
  policy preempt default/web-1          # decide for one pending pod, and record it
  policy explain 1                      # why there, why these pods
"""


class _LazyGroup(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        home = COMMANDS.get(cmd_name)
        if home is None:
            return None
        module, _, name = home.partition(":")
        return cast("click.Command", getattr(import_module(module), name))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # `policy ... | head` is no error: what nobody reads need not be written.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return Exit.OK
        return result

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as exc:
            close = _close_to(args[0]) if args else None
            if close:
                text = f"{exc.message.rstrip('.')}\n  help: did you mean `policy {close}`?"
                raise click.UsageError(text, ctx) from None
            raise


def _close_to(word: str) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(word, COMMANDS, n=1)), None)


@click.command(cls=_LazyGroup, help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="policy", message="%(prog)s %(version)s")
def cli() -> None:
    pass


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit status. The only place that catches everything."""
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments),
            prog_name="policy",
            standalone_mode=False,
        )
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except click.UsageError as exc:
        exc.show()
        return Exit.USAGE
    except click.ClickException as exc:
        exc.show()
        return Exit.ERROR
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)  # noqa: T201  # words go to standard error
        return Exit.INTERRUPTED
    except Exception as exc:
        message = _known(exc)
        if message is None:
            raise
        click.echo(message, err=True)
        return Exit.ERROR
    return result if isinstance(result, int) else Exit.OK


def _known(error: Exception) -> str | None:
    """The text of an error that says what is wrong with the input; None for one of our own."""
    homes = sys.modules  # a module that was never imported has raised nothing
    for module, name in _KNOWN:
        kind = getattr(homes.get(module), name, None)
        if isinstance(kind, type) and isinstance(error, kind):
            help_text = getattr(error, "help", "")
            return f"{error}\n  help: {help_text}" if help_text else str(error)
    return None


_KNOWN: Final = (
    ("policy.manifests.problems", "ManifestError"),
    ("policy.rules.problems", "RulesError"),
    ("policy.store.errors", "StoreError"),
    ("policy.conformance.run", "RecordingError"),
    ("policy.preemption.decide", "DecisionError"),
    ("policy.scheduling.state", "Contended"),
    ("policy.cli.why_not", "WhyNotError"),
    ("policy.audit.processes", "WorkerLost"),
    ("policy.audit.what_if", "WhatIfError"),
    ("policy.audit.tables_out", "ExportError"),
)
