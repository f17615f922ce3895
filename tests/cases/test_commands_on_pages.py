"""What the pages of the service tell a reader to type is a command that there is."""

from __future__ import annotations

import re
from importlib.resources import files

import click
import pytest

from policy.cli.app import cli

TEMPLATES = files("policy.server.pages") / "templates"
NAMED = sorted(
    {
        (file.name, command)
        for file in TEMPLATES.iterdir()
        for command in re.findall(r"<code>policy ([^<]+)</code>", file.read_text("utf-8"))
    }
)


@pytest.mark.parametrize(("page", "named"), NAMED)
def test_a_command_that_a_page_names(page: str, named: str) -> None:
    """With the options that it is named with."""
    command: click.Command = cli
    words = named.split()
    context = click.Context(cli)
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None, (page, named)
        command = found
    options = {option for param in command.params for option in param.opts}
    assert {word for word in words if word.startswith("--")} <= options
