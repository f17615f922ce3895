"""`policy env scheduler`: what a cluster's own scheduler runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from policy.audit.writers import written_by
from policy.cli import options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.rules.scheduler_config import Profile
    from policy.store import SchedulerRow, Store
    from policy.store.record.schedulers import SchedulerProfile

_COLUMNS: Final = ("profile", "rule_set", "digest", "since", "actor", "source")


@click.command("scheduler")
@click.argument("name", metavar="NAME", shell_complete=options.proposing("environments"))
@click.option(
    "--config",
    "file",
    metavar="FILE",
    shell_complete=options.proposing("files"),
    help="The KubeSchedulerConfiguration that the scheduler runs with.",
)
@click.option(
    "--for",
    "version",
    metavar="VERSION",
    help="Version of the kube-scheduler, as in `policy rules for`; by default that of the newest"
    " kubelet in the cluster.",
)
@click.option(
    "--detect", is_flag=True, help="Forget the configuration: the server's version counts again."
)
@options.db_option
@options.output_option
def command(
    name: str, file: str | None, version: str | None, detect: bool, db: str, form: str
) -> int:
    """Say what the scheduler of an environment's cluster runs, or show what was said.

    Observed preemptions are decided again by the rule set of the server's version, with a
    scheduler's default settings. With --config, they are decided by what its own configuration
    file says instead: plugins, weights, arguments and the share of nodes that it looks at, each
    profile by its schedulerName. It is part of the audited record. It counts for observations from
    now on; those that are recorded keep their verdict. FILE is read as by `policy rules
    from-config`, and each part of it that is not modelled is reported on standard error.

    \b
    Example:
      policy env create prod
      policy env scheduler prod --config scheduler.yaml
      policy env scheduler prod
      policy env scheduler prod --detect
    """
    if detect and file is not None:
        raise options.Misused("`--detect` and `--config` exclude each other")
    options.need("--config", file is not None, "version")
    if file is None and not detect:
        with session.open_store(db) as store:
            found = [row for row in store.read.schedulers(name) if row.rule_set]
        _print(found, form)
        if not found:
            output.say("the rule set of the server's version counts: `policy rules for VERSION`")
        return Exit.OK
    from policy.rules.scheduler_config import ConfigError

    with session.open_store(db, write=True) as store:
        try:
            profiles = [] if file is None else list(_profiles(store, name, file, version))
        except ConfigError as exc:
            output.block(str(exc.problem), err=True)
            return Exit.ERROR
        changed = store.record.set_scheduler(
            name,
            profiles,
            source="" if file is None else "<stdin>" if file == "-" else file,
            at_ms=session.clock_ms(),
            actor=session.actor(),
        )
    _print(changed, form)
    if not changed:
        counts = "the server's version" if file is None else "this configuration"
        output.say(f"{counts} counts already; nothing was changed")
    return Exit.OK


def _profiles(
    store: Store, name: str, file: str, version: str | None
) -> Iterator[SchedulerProfile]:
    from policy.cli.rules_from_config import generation_for, text_of
    from policy.rules.scheduler_config import profiles_of

    shown = "<stdin>" if file == "-" else file
    profiles = profiles_of(text_of(file), shown)
    if version is not None:
        extends = generation_for(version)
    else:
        extends = _detected(store, name, profiles[0])
    # Of several profiles of one name the last one is what a scheduler would refuse to start with.
    for profile in {one.name: one for one in profiles}.values():
        yield _profile(profile, extends, shown)


def _profile(profile: Profile, extends: str, shown: str) -> SchedulerProfile:
    from policy.rules import RuleSet
    from policy.rules.scheduler_config import translate
    from policy.store.record.schedulers import SchedulerProfile

    result = translate(profile, base=RuleSet.load(extends), extends=extends, name=None)
    for notice in result.notices:
        output.say(f"{shown}: {notice}")
    return SchedulerProfile(
        profile=profile.name, rules=RuleSet.load(result.rules), notices=result.notices
    )


def _detected(store: Store, name: str, profile: Profile) -> str:
    """The rule set that the configuration is laid over where no version is named."""
    from policy.audit.observed.recording import server_rules
    from policy.cluster.objects import Node
    from policy.rules.scheduler_config import generation_of

    state = store.state.load(store.read.environment(name).cluster)
    found = server_rules([obj for obj in state.objects if type(obj) is Node])
    if found.version:
        output.say(f"extends {found.rules.name}: {found.why}; `--for` names another version")
        return found.rules.name
    extends = generation_of(profile)
    output.say(
        f"extends {extends}, the newest that reads the file's apiVersion; `--for` names another"
        " version"
    )
    return extends


def _print(found: list[SchedulerRow], form: str) -> None:
    lines = [line(row) for row in found]
    if form in ("json", "yaml"):
        output.document(lines, form)
    else:
        output.rows(lines, form, columns=_COLUMNS)


def line(row: SchedulerRow) -> dict[str, Any]:
    """A profile as lists show it."""
    return {
        "environment": row.environment,
        "profile": row.profile,
        "rule_set": row.rule_set or None,
        "digest": row.rule_set_digest or None,
        "since": session.instant(row.at_ms),
        "actor": row.actor,
        **written_by(row),
        "source": row.source,
        "notices": list(row.notices),
    }
