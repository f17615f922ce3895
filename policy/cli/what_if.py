"""`policy what-if`"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from policy.cli import env, options, output, session
from policy.cli.exits import Exit
from policy.cli.state import Made, at_option, cluster_at, made_at, revision_at

if TYPE_CHECKING:
    from policy.audit.cascade import CascadeStep
    from policy.audit.supposed_groups import GroupChange
    from policy.cluster.digest import Change
    from policy.cluster.objects import Pod, SchedulingPodGroup
    from policy.cluster.snapshot import Snapshot
    from policy.rules import RuleSet
    from policy.store import Store


def _values(_: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, int]:
    """`NAME=VALUE` options as numbers by name."""
    found = {}
    for text in texts:
        matched = re.fullmatch(r"([^=]+)=(-?[0-9]{1,10})", text)
        if matched is None or abs(int(matched[2])) >= 2**31:
            raise click.BadParameter(f"`{text}` is not like `NAME=1000`", param=param)
        if matched[1] in found:
            raise click.BadParameter(f"`{matched[1]}` is given twice", param=param)
        found[matched[1]] = int(matched[2])
    return found


def _group_changes(
    _: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> tuple[GroupChange, ...]:
    """`NAME:FIELD=VALUE` options as changes of pod groups."""
    if not texts:
        return ()
    from policy.audit.supposed_groups import GroupChange

    try:
        return tuple(GroupChange.parse(text) for text in texts)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param=param) from exc


@click.command("what-if")
@click.argument("pods", metavar="[NAMESPACE/NAME]...", nargs=-1)
@click.option(
    "--pod",
    "files",
    metavar="FILE|-",
    shell_complete=options.proposing("files"),
    multiple=True,
    help="Suppose that the pods of this manifest wait as well.",
)
@click.option(
    "--priority-class",
    "classes",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_values,
    help="Suppose that this class, and every pod of it, has this value; it may be a new class.",
)
@click.option(
    "--remove-node",
    "nodes",
    metavar="NAME",
    multiple=True,
    help="Suppose that this node is gone; its pods come back and look for another.",
)
@click.option(
    "--pod-group",
    "groups",
    metavar="NAMESPACE/NAME:FIELD=VALUE",
    multiple=True,
    callback=_group_changes,
    help="Suppose another `minCount`, `priority`, `disruptionMode` (Pod, PodGroup) or"
    " `preemptionPolicy` of a pod group; its pending members are decided.",
)
@options.rules_option
@env.env_option
@at_option
@options.db_option
@options.cluster_option
@options.seed_option
@click.option(
    "--now",
    metavar="TIME",
    callback=options.deciding_instant,
    help="The time to decide for; by default the clock, with `--at` the time of that state or"
    " decision.",
)
@click.option(
    "--depth",
    metavar="N",
    type=click.IntRange(1, 100),
    default=3,
    help="How far to follow: 1 are the pods themselves, 2 their victims as well, and so on.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Keep the decisions, marked as hypothetical; no list or view mixes them in.",
)
@options.output_option
def command(
    pods: tuple[str, ...],
    files: tuple[str, ...],
    classes: dict[str, int],
    nodes: tuple[str, ...],
    groups: tuple[GroupChange, ...],
    rules: str,
    environment: str,
    at: str | None,
    db: str,
    cluster: str | None,
    seed: int,
    now: datetime | None,
    depth: int,
    record: bool,
    form: str,
) -> int:
    """Show which decisions would follow from a change, down to the victims of the victims.

    Decides the named pods, those of `--pod`, and those of a removed node; without any of them all
    pending pods. Where the rules schedule pod groups, members are decided together, and a group may
    be named in place of its members. An evicted pod leaves at once; one that has an owner comes
    back as a new pending pod of the same priority and age (`web-1~2` is the second life of
    `web-1`). Budgets follow as the disruption controller would set them. Nothing is recorded or
    changed unless `--record` is given.

    \b
    Example:
      policy what-if default/web-1 --depth 2
      policy what-if --remove-node node-1 --rules kube-1.20
      policy what-if --priority-class high=100 --at 1 --output json
    """
    from policy.audit.cascade import foresee, with_members
    from policy.audit.what_if import Supposition, suppose
    from policy.cli.what_if_view import say_lost, show, sum_up
    from policy.preemption.decide import of_cluster

    with session.open_store(db, write=record) as store:
        made = made_at(store, at)
        basis = _basis(store, made, environment, cluster, rules, seed=seed, now=now)
        rule_set, of, seed = basis.rules, basis.cluster, basis.seed
        revision = revision_at(store, of, at)
        snapshot = _snapshot(store, of, revision, basis, past=at is not None)
        if groups and rule_set.groups is None:
            raise options.Misused(
                f"rule set `{rule_set.name}` does not schedule pod groups",
                help="give one that does with `--rules`, such as kube-1.36-groups",
            )
        new_pods, new_groups = _read(files, snapshot, classes)
        supposition = Supposition(
            pods=new_pods,
            priority_classes=classes,
            removed_nodes=nodes,
            groups=new_groups,
            group_changes=groups,
        )
        with of_cluster(of):
            supposed = suppose(snapshot, supposition)
            named = [pod if "/" in pod else f"default/{pod}" for pod in pods]
            asked = [*with_members(supposed.snapshot, rule_set, named), *supposed.waiting]
            if not asked and not (files or nodes):
                from policy.scheduling.order import pending

                asked = pending(supposed.snapshot, order=rule_set.queue.order)
            steps = foresee(supposed.snapshot, rule_set, asked, depth=depth, seed=seed)
        ids: Mapping[int, int | str] = {}
        if record:
            ids = _record(store, of, revision, rule_set, steps, supposed.changes)
    show(steps, ids, form)
    say_lost(supposed.lost)
    sum_up(steps, ids)
    return Exit.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """What decides, and for when."""

    rules: RuleSet
    cluster: str
    seed: int
    now_ms: int | None  #: None where nothing says it
    made: Made | None  #: the decision of `--at`, where it is decided for the time of that


def _basis(
    store: Store,
    made: Made | None,
    environment: str,
    cluster: str | None,
    rules: str,
    *,
    seed: int,
    now: datetime | None,
) -> _Basis:
    """Time, seed, rules and figures of the past: those of the decision, where nothing is given."""
    from policy.rules import RuleSet

    now_ms = options.millis(now)
    if made is None:
        chosen = env.chosen(store, environment=environment, cluster=cluster, rules=rules)
        return _Basis(
            rules=chosen.rules, cluster=chosen.cluster, seed=seed, now_ms=now_ms, made=None
        )
    row, of = made.row, cluster_at(store, cluster, made)
    given = click.get_current_context().get_parameter_source
    default = ParameterSource.DEFAULT
    found = RuleSet.from_canonical(store.read.rule_set(row.rule_set_digest))
    if given("environment") is ParameterSource.COMMANDLINE or given("rules") is not default:
        chosen = env.chosen(store, environment=environment, cluster=of, rules=rules)
        found, of = chosen.rules, chosen.cluster
    if given("seed") is default:
        seed = row.seed
    then = now_ms is None
    output.say(
        f"as {made.name} was made: for {session.instant(row.now_ms if then else now_ms)},"
        f" seed {seed}, rules {found.name}"
    )
    return _Basis(
        rules=found,
        cluster=of,
        seed=seed,
        now_ms=row.now_ms if then else now_ms,
        made=made if then else None,
    )


def _snapshot(store: Store, cluster: str, revision: int, basis: _Basis, *, past: bool) -> Snapshot:
    """Raises StoreError."""
    from policy.audit.recorded import with_figures
    from policy.cluster.snapshot import Snapshot
    from policy.store import DecisionRow

    state = store.state.load(cluster, at=revision)
    now_ms, made, rules = basis.now_ms, basis.made, basis.rules
    if now_ms is None:
        now_ms = state.at_ms if past else session.clock_ms()
    history = None
    if rules.history_needs:
        history = (
            store.read.history(cluster, rules.history_needs, now_ms=now_ms)
            if made is None
            else made.history
        )
    snapshot = Snapshot.from_objects(
        state.objects, now_ms=now_ms, state_digest=state.state_digest, history=history
    )
    if made is None:
        return snapshot
    if isinstance(made.row, DecisionRow):
        return with_figures(store, made.row, snapshot, rules)
    _require_figures(made, rules)
    return snapshot


def _require_figures(made: Made, rules: RuleSet) -> None:
    """Raises StoreError where the rules read other figures of the past than a cycle did."""
    from policy.preemption.columns import history_key
    from policy.store import StoreError

    known = made.history or {}
    if any(history_key(*need) not in known for need in rules.history_needs):
        raise StoreError(
            f"`{rules.name}` reads figures of the past that {made.name} did not read",
            help="give the time for which they count with `--now`",
        )


def _read(
    files: Sequence[str], snapshot: Snapshot, classes: Mapping[str, int]
) -> tuple[list[Pod], list[SchedulingPodGroup]]:
    """The pods and pod groups of manifests, as an API server would have admitted them."""
    from policy.audit.what_if import WhatIfError, new_class
    from policy.cluster.objects import Pod, SchedulingPodGroup
    from policy.manifests import read, resolve

    if not files:
        return [], []
    found = read(files, stdin=session.standard_input())
    taken = [obj for obj in found.objects if isinstance(obj, Pod | SchedulingPodGroup)]
    if len(taken) < len(found.objects) or not any(isinstance(obj, Pod) for obj in taken):
        raise WhatIfError(
            "`--pod` takes manifests of pods and of the pod groups that they name, nothing else",
            help="import other objects into a database of their own first",
        )
    supposed = {name: new_class(name, value) for name, value in classes.items()}
    known = {**snapshot.priority_classes, **supposed}
    resolved = resolve(taken, known_classes=known.values(), places=found.places)
    return (
        [obj for obj in resolved if isinstance(obj, Pod)],
        [obj for obj in resolved if isinstance(obj, SchedulingPodGroup)],
    )


def _record(
    store: Store,
    cluster: str,
    revision: int,
    rules: RuleSet,
    steps: Sequence[CascadeStep],
    supposed: Sequence[Change],
) -> Mapping[int, int | str]:
    """Keep the decisions, all of them or none; what each step's is named by: `7`, `group:2`."""
    from policy.store import HypotheticalDecision, Recorded

    decided = [
        (step.number, step.decision, step.supposed) for step in steps if step.decision is not None
    ]
    recorded = store.record.hypothetical(
        cluster,
        [
            HypotheticalDecision(decision=decision, supposed=changes if i else (supposed, *changes))
            for i, (_, decision, changes) in enumerate(decided)
        ],
        revision=revision,
        rules=rules,
        actor=session.actor(),
        at_ms=session.clock_ms(),
        candidates_kept=rules.audit_candidates,
    )
    return {
        number: one.decision_id if isinstance(one, Recorded) else f"{options.GROUP}{one.session_id}"
        for (number, *_), one in zip(decided, recorded, strict=True)
    }
