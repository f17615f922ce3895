"""`docs/cli.md` out of the commands' own help: `python -m policy.cli.docs > docs/cli.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Final

import click

from policy.cli.app import cli
from policy.cli.exits import Exit

_INTRO: Final = """\
# The command line

Generated from the commands' help: `python -m policy.cli.docs > docs/cli.md`.

Data goes to standard output, words and progress to standard error. `--output` chooses the form of
the data; a table that is not printed on a terminal is as wide as it needs to be, and on a terminal
that is too narrow for its columns each row becomes a list of them. Completion for a shell is built
in: `eval "$(_POLICY_COMPLETE=bash_source policy)"` (or `zsh_source`, `fish_source`); it proposes
rule sets, environments, clusters and saved queries.

Names and other texts of the cluster are shown, never obeyed: in tables, words and errors a control
character, a line end, a direction mark or a character of no width is written as `\\n`, `\\x1b`,
`\\u202e`. JSON and YAML write the same characters with their own escapes and so keep the value.
CSV keeps them as they are, but puts an apostrophe before a text that a spreadsheet would take for
a formula (one that begins with `=`, `+`, `-`, `@`, a tab or a carriage return); numbers stay
numbers, and `--raw` leaves the texts alone. Data is UTF-8 in every locale.

A reader that leaves (`policy run -o jsonl | head -1`) changes nothing in what a command does: it
goes on unread and ends with its own status. Where standard output cannot be written for another
reason (a full disk, a closed stream), the command does its work as well, says so, and ends with
status 1. An option that would mean nothing beside the others is an error with status 2.
"""


def commands() -> Iterator[tuple[click.Context, click.Command]]:
    """Every command with its context, groups before their members."""
    yield from _walk(cli, click.Context(cli, info_name="policy", **cli.context_settings))


def _walk(
    command: click.Command, ctx: click.Context
) -> Iterator[tuple[click.Context, click.Command]]:
    yield ctx, command
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            member = command.get_command(ctx, name)
            assert member is not None
            inner = click.Context(member, info_name=name, parent=ctx)
            yield from _walk(member, inner)


def examples(command: click.Command) -> list[str]:
    """The command lines of a command's example."""
    _, _, text = inspect.cleandoc(command.help or "").partition("Example:\n")
    return [line.strip() for line in text.splitlines() if line.strip()]


def markdown() -> str:
    """The whole page."""
    parts = [_INTRO, _exits()]
    parts.extend(_section(ctx, command) for ctx, command in commands())
    return "\n".join(parts)


def _exits() -> str:
    rows = "\n".join(f"| {code.value} | {code.meaning} |" for code in Exit)
    return f"## Exit status\n\n| status | meaning |\n| --- | --- |\n{rows}\n"


def _section(ctx: click.Context, command: click.Command) -> str:
    path = ctx.command_path
    words = inspect.cleandoc(command.help or "").replace("\b\n", "")
    text, _, example = words.partition("Example:\n")
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines = [f"## {path}", "", text.strip(), "", f"    {path} {usage}".rstrip(), ""]
    options = [param for param in command.params if isinstance(param, click.Option)]
    if options:
        lines += ["| option | meaning |", "| --- | --- |"]
        lines += [_option(option, ctx) for option in options]
        lines.append("")
    lines += ["Example:", ""]
    lines += [f"    {line}" for line in inspect.cleandoc(example).splitlines()]
    return "\n".join(lines) + "\n"


def _option(option: click.Option, ctx: click.Context) -> str:
    """A row of the table; written here, so that no version of click words it differently."""
    name = ", ".join(option.opts)
    if not option.is_flag:
        name += f" {option.make_metavar(ctx)}"
    meaning = option.help or ""
    default = option.to_info_dict()[
        "default"
    ]  # without it, newer releases have a mark of their own
    if isinstance(option.show_default, str):
        meaning += f" Default: {option.show_default}."
    elif option.show_default is None and not option.is_flag and default is not None:
        meaning += f" Default: `{default}`."
    if option.envvar:
        meaning += f" Environment: `{option.envvar}`."
    return f"| `{_cell(name)}` | {_cell(meaning)} |"


def _cell(text: str) -> str:
    """`|` would end a table cell."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(markdown())
