"""The tree of commands, and the outermost frame: known errors become messages, not tracebacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

import click

from policy import __version__
from policy.cli import options, output, streams
from policy.cli.exits import Exit
from policy.text import system


class _Home(NamedTuple):
    """Where a command lives, and the first sentence of its help."""

    module: str  #: of `policy.cli`
    summary: str
    name: str = "command"  #: in the module


COMMANDS: Final = {
    "import": _Home(
        "importing",
        "Read the state of a cluster from what kubectl printed, or from its API server.",
    ),
    "preempt": _Home("preempt", "Decide for one pending pod: where it fits, or who must leave."),
    "run": _Home("run", "Decide for all pending pods, in the order of the queue."),
    "decisions": _Home("decisions", "List recorded decisions, the newest first."),
    "groups": _Home("groups", "List recorded cycles of pod groups, the newest first."),
    "explain": _Home("explain", "Say why a recorded decision came out as it did."),
    "observed": _Home(
        "observed", "List the preemptions that a cluster's own scheduler made, the newest first."
    ),
    "follow": _Home(
        "follow",
        "Follow a real cluster: its state, and every preemption that its own scheduler makes.",
    ),
    "who": _Home(
        "who",
        "List who evicted a pod, or the pods of a workload: for whom, by which rule, who answers.",
    ),
    "avoidable": _Home(
        "avoidable", "Say what would have spared the victims of a decision, and at whose cost."
    ),
    "nominations": _Home(
        "nominations", "List nominations: who was promised which node, and what came of it."
    ),
    "report": _Home(
        "report",
        "Where decisions hurt: workloads that are hit again and again, and what was lost.",
        "group",
    ),
    "state": _Home("state", "Look at the cluster as it is, or as it was at any revision.", "group"),
    "replay": _Home("replay", "Make recorded decisions again and compare them with the record."),
    "compare": _Home(
        "compare",
        "Decide recorded decisions again under other rules, and report what would be different.",
    ),
    "what-if": _Home(
        "what_if",
        "Show which decisions would follow from a change, down to the victims of the victims.",
    ),
    "simulate": _Home(
        "simulate",
        "Simulate a trace under one or several rule sets, and compare what becomes of its pods.",
    ),
    "tune": _Home("tune", "Search for rules that do better than a base on traces."),
    "audit": _Home("audit", "Check that the record is what was written.", "group"),
    "sql": _Home(
        "sql", "Run one SQL query that reads, your own or a saved one, and print what it finds."
    ),
    "export": _Home(
        "export", "Write whole tables to files, one file per table, all as they are at one instant."
    ),
    "rules": _Home(
        "rules",
        "Look at rule sets: what they say, how they differ, and whether they do what they should.",
        "group",
    ),
    "env": _Home(
        "env", "Environments: a cluster, and the rule set that is active for it.", "group"
    ),
    "serve": _Home(
        "serve", "Serve the extender that kube-scheduler calls, the API, and the pages."
    ),
    "token": _Home("token", "Tokens: who may call the service, and what they may do.", "group"),
    "db": _Home(
        "db", "Look after the database: its schema, and how much of the past it keeps.", "group"
    ),
    "batch": _Home(
        "batch", "Hold sessions over queues and gangs, as kube-batch and Volcano do.", "group"
    ),
    "conform": _Home("conform", "Compare a rule set with decisions of the real schedulers."),
}
"""Every command: a new one is one file and one line here. The list of commands imports none."""

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
        module = import_module(f"policy.cli.{home.module}")
        return cast("click.Command", getattr(module, home.name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, COMMANDS))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, click.Command(name, help=home.summary).get_short_help_str(limit))
                    for name, home in COMMANDS.items()
                ]
            )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as exc:
            # click ends the process without a word for some of them.
            raise _Refused(exc) from exc

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as exc:
            close = _close_to(args[0]) if args else None
            if close:
                message = exc.message.rstrip(".")
                raise options.Misused(message, help=f"did you mean `policy {close}`?") from None
            raise


def _close_to(word: str) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(word, COMMANDS, n=1)), None)


@click.command(
    cls=_LazyGroup,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, prog_name="policy", message="%(prog)s %(version)s")
def cli() -> None:
    pass


class _Refused(Exception):
    """What the operating system refused, on its way past click."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit status. The only place that catches everything.

    Whatever is printed passes through `streams`. Where standard output cannot take it, the command
    does all the same what it was asked to do; the status then is 1, except where a reader left.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    with streams.guarded() as out:
        status = _status(given)
        out.flush()
        failure = out.failure
        if failure is None or isinstance(failure, BrokenPipeError):
            return status
        said = system.explained(failure)
        output.say(f"standard output: {said.message}", help=_UNWRITTEN)
        return status or Exit.ERROR


_UNWRITTEN: Final = "what the command recorded or changed is done; only its output is lost"


def _status(arguments: Sequence[str]) -> int:
    try:
        _require_utf8(arguments)
        result = cli.main(args=list(arguments), prog_name="policy", standalone_mode=False)
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except SystemExit as exc:  # click, when it has answered a shell
        return exc.code if isinstance(exc.code, int) else Exit.OK
    except click.UsageError as exc:
        _say_usage(exc)
        return Exit.USAGE
    except click.ClickException as exc:
        output.say(f"Error: {exc.format_message()}")
        return Exit.ERROR
    except (click.Abort, KeyboardInterrupt):
        return _interrupted()
    except OSError as exc:
        if _began_with_interrupt(exc):
            return _interrupted()
        _say_refused(exc)
        return Exit.ERROR
    except _Refused as exc:
        _say_refused(exc.error)
        return Exit.ERROR
    except UnicodeEncodeError as exc:  # half a character, out of the environment or the data
        output.say(f"`{exc.object[:80]}` is not text that can be kept")
        return Exit.ERROR
    except Exception as exc:
        if _began_with_interrupt(exc):
            return _interrupted()
        if not _say_known(exc):
            raise
        return Exit.ERROR
    return result if isinstance(result, int) else Exit.OK


def _interrupted() -> int:
    output.say("interrupted")
    return Exit.INTERRUPTED


def _began_with_interrupt(error: BaseException) -> bool:
    """A Ctrl-C that made something else fail while it was cleaned up."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__cause__ or seen.__context__
    return seen is not None


def _require_utf8(arguments: Sequence[str]) -> None:
    """Raises Misused for an argument that no record could hold."""
    variables = [value for name, value in os.environ.items() if name.startswith("POLICY_")]
    for text in (*arguments, *variables):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _not_utf8(os.fsencode(text)) from None


def _not_utf8(text: bytes) -> options.Misused:
    try:
        shown = text.decode()
    except UnicodeDecodeError:
        shown = text.decode(errors="backslashreplace")
        advice = "rename the file, or give it on standard input"
        return options.Misused(f"`{shown}` is not UTF-8 text", help=advice)
    advice = "set `LC_ALL=C.UTF-8`, and unset `PYTHONUTF8`"
    return options.Misused(f"`{shown}` cannot be read in this locale", help=advice)


def _say_usage(error: click.UsageError) -> None:
    """As click words it, with the help apart."""
    ctx = error.ctx
    if ctx is not None and error.message == ctx.get_help():  # a group without a command
        output.block(error.message, err=True)
        return
    if ctx is not None:
        output.block(ctx.get_usage(), err=True)
        if ctx.command.get_help_option(ctx) is not None:
            output.say(f"Try `{ctx.command_path} {ctx.help_option_names[-1]}` for help.")
        output.say("")
    output.say(f"Error: {error.format_message()}", help=getattr(error, "help", ""))


def _say_refused(error: OSError) -> None:
    said = system.explained(error)
    place = error.filename
    if isinstance(place, bytes):
        place = os.fsdecode(place)
    output.say(f"{place}: {said.message}" if place else said.message, help=said.help)


def _say_known(error: Exception) -> bool:
    """Say an error that tells what is wrong with the input; False for one of our own."""
    homes = sys.modules  # a module that was never imported has raised nothing
    for module, name in _KNOWN:
        kind = getattr(homes.get(module), name, None)
        if isinstance(kind, type) and isinstance(error, kind):
            if hasattr(error, "problems"):  # each of which has lines of its own
                output.block(str(error), err=True)
            else:
                output.say(str(error), help=getattr(error, "help", ""))
            return True
    return False


_KNOWN: Final = (
    ("policy.extras", "ExtraMissing"),
    ("policy.manifests.problems", "ManifestError"),
    ("policy.rules.problems", "RulesError"),
    ("policy.store.errors", "StoreError"),
    ("policy.conformance.run", "RecordingError"),
    ("policy.preemption.decide", "DecisionError"),
    ("policy.scheduling.second_look", "DecisionsDiffer"),
    ("policy.scheduling.state", "Contended"),
    ("policy.audit.why_not", "WhyNotError"),
    ("policy.audit.node_change", "NoNodeChange"),
    ("policy.proving.questions", "ProvingError"),
    ("policy.audit.what_if", "WhatIfError"),
    ("policy.live.connection", "LiveError"),
    ("policy.live.connection", "Interrupted"),
    ("policy.parts.work", "PartsError"),
    ("policy.simulation.trace", "TraceError"),
    ("policy.audit.export_folder", "ExportError"),
)
