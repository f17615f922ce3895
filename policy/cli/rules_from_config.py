"""`policy rules from-config`"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from policy.cli import options, output
from policy.cli.exits import Exit


@click.command("from-config")
@click.argument("file", metavar="FILE|-", shell_complete=options.proposing("files"))
@click.option(
    "--profile",
    metavar="NAME",
    help="The profile with this schedulerName; by default the only one, or `default-scheduler`.",
)
@click.option(
    "--for",
    "version",
    metavar="VERSION",
    help="Version of the kube-scheduler that reads the file, as in `policy rules for`; by default"
    " the newest that reads its apiVersion.",
)
@click.option("--name", metavar="NAME", help="Name of the rule set; by default after the profile.")
def command(file: str, profile: str | None, version: str | None, name: str | None) -> int:
    """Print the rule file that stands for kube-scheduler's own configuration.

    FILE is a KubeSchedulerConfiguration (v1alpha1 to v1), a ConfigMap or List around one, or a
    Policy, in YAML or JSON. The rule file extends the rule set of the scheduler's generation and
    holds the profile's plugins, weights, arguments and extenders. Each part of the configuration
    that is not modelled is reported on standard error.

    \b
    Example:
      policy rules from-config scheduler.yaml
      policy rules from-config - --for 1.30.8 --name batch < scheduler.yaml > batch.yaml
    """
    from policy.rules import RuleSet
    from policy.rules.scheduler_config import (
        ConfigError,
        chosen,
        generation_of,
        profiles_of,
        translate,
    )

    text = text_of(file)
    shown = "<stdin>" if file == "-" else file
    try:
        found = profiles_of(text, shown)
        wanted = chosen(found, profile, shown)
    except ConfigError as exc:
        output.block(str(exc.problem), err=True)
        return Exit.ERROR
    extends = generation_of(wanted) if version is None else generation_for(version)
    base = RuleSet.load(extends)
    result = translate(wanted, base=base, extends=extends, name=name)
    output.document(result.rules, "yaml")
    for notice in result.notices:
        output.say(f"{shown}: {notice}")
    if version is None:
        api = "a Policy" if wanted.is_policy else wanted.version or "its apiVersion"
        output.say(f"extends {extends}, the newest that reads {api}; `--for` names another version")
    others = [p.name for p in found if p is not wanted]
    if others and profile is None:
        output.say(f"other profiles: {', '.join(others)}; choose with `--profile`")
    return Exit.OK


def generation_for(version: str) -> str:
    """The shipped rule set that decides like a version. Raises Misused."""
    from policy.rules.versions import of_server

    generation = of_server(version)
    if generation is None:
        raise options.Misused(f"no shipped rule set decides like `{version}`")
    return generation.name


def text_of(file: str) -> str:
    """The text of the file, or of standard input. Raises Misused where it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as exc:
        from policy.text.system import explained

        said = explained(exc)
        raise options.Misused(f"{file}: {said.message}", help=said.help) from exc
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise options.Misused(f"{file}: not UTF-8 text") from exc
