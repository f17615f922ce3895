"""`policy preempt`"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from policy.cli import env, options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.cluster.snapshot import Snapshot
    from policy.preemption.decide import DecisionError
    from policy.scheduling.cycle import Scheduler


@click.command("preempt")
@click.argument("pod", metavar="NAMESPACE/NAME")
@click.option(
    "--group",
    "as_group",
    is_flag=True,
    help="NAMESPACE/NAME is a pod group, or a member of one: run the cycle of the whole group.",
)
@options.db_option
@options.cluster_option
@options.rules_option
@env.env_option
@options.seed_option
@options.now_option
@click.option("--dry-run", is_flag=True, help="Decide, and neither record nor change anything.")
@options.output_option
def command(
    pod: str,
    as_group: bool,
    db: str,
    cluster: str | None,
    rules: str,
    environment: str,
    seed: int,
    now: datetime | None,
    dry_run: bool,
    form: str,
) -> int:
    """Decide for one pending pod: where it fits, or who must leave.

    Runs one scheduling cycle: where the pod fits it is placed, otherwise the pods to evict are
    chosen. The decision, why it came about and what it changes are recorded together. The exit
    status is 0 for every decision, also for one without preemption.

    With --group all pending members of a pod group are tried together; the rules have to schedule
    pod groups, as kube-1.36-groups does.

    \b
    Example:
      policy preempt default/web-1
      policy preempt default/web-1 --dry-run --rules kube-1.28 --output json
    """
    from policy.cli import view
    from policy.decision.record import record_of
    from policy.extenders.client import HttpExtenders
    from policy.preemption.decide import of_cluster
    from policy.scheduling.cycle import Scheduler
    from policy.store import StoredDecision

    clock = session.deciding_at(now)
    key = pod if "/" in pod else f"default/{pod}"
    with session.open_store(db, write=not dry_run) as store:
        chosen = env.chosen(store, environment=environment, cluster=cluster, rules=rules)
        journal = env.journal(store, chosen)
        scheduler = Scheduler(
            journal,
            chosen.rules,
            clock=clock,
            seed=seed,
            dry_run=dry_run,
            extenders=HttpExtenders(),
        )
        session.tell_of_projections(chosen.rules, scheduler.state.snapshot)
        if as_group or (chosen.rules.groups is not None and _group_of(scheduler, key)):
            with of_cluster(chosen.cluster):
                return _group(scheduler, key, form)
        base = scheduler.state.revision
        if scheduler.snapshot.pod(key) is None:
            raise _unknown(scheduler.snapshot, key, chosen.cluster)
        step = scheduler.decide(key)
        if step.recording is not None:
            stored = store.read.decision(step.recording.decision_id)
        else:
            stored = StoredDecision.unsaved(
                record_of(step.decision),
                cluster=chosen.cluster,
                environment=chosen.environment,
                base_revision=base,
                at_ms=session.clock_ms(),
                actor=session.actor(),
            )
    if form == "table":
        view.print_short(stored)
    elif form in ("json", "yaml", "jsonl"):
        output.document(view.document(stored), form)
    else:
        output.rows([view.summary(stored.row)], form, columns=view.SUMMARY)
    by = f"decided by rule set {stored.row.rule_set}"
    if step.recording is None:
        output.say(f"{by}; nothing was recorded (--dry-run)")
    else:
        number = stored.row.id
        output.say(f"{by}, recorded as decision {number}; `policy explain {number}` says why")
    return Exit.OK


def _unknown(snapshot: Snapshot, key: str, cluster: str) -> DecisionError:
    """There is no such pod; the one that may be meant waits for a node."""
    import difflib

    from policy.preemption.decide import DecisionError

    waiting = [other for _, other, pod in snapshot.in_order() if not pod.spec.node_name]
    name = key.partition("/")[2]
    called = [other for other in waiting if other.partition("/")[2] == name]
    close = called[:1] or difflib.get_close_matches(key, waiting, n=1)
    there = f"`policy state show pods` lists all; without a node: {len(waiting)}"
    return DecisionError(
        f"no pod `{key}` in cluster `{cluster}`",
        help=f"did you mean `{close[0]}`?" if close else there,
    )


def _group_of(scheduler: Scheduler, key: str) -> str:
    """The pod group of a pod; "" without one. Members are never scheduled by themselves."""
    from policy.cluster.pod_groups import group_key

    pod = scheduler.snapshot.pod(key)
    return "" if pod is None else group_key(pod)


def _group(scheduler: Scheduler, key: str, form: str) -> int:
    """Run the cycle of a pod group, which a member may stand for."""
    from policy.cli import groups_view
    from policy.cluster import canonical

    step = scheduler.decide_group(_group_of(scheduler, key) or key)
    number = None if step.recording is None else step.recording.session_id
    parsed = canonical.parse(step.decision.canonical.decode())
    if form == "table":
        groups_view.print_decision(groups_view.document(parsed, number))
    elif form in ("json", "yaml", "jsonl"):
        output.document(groups_view.document(parsed, number), form)
    else:
        from policy.cli import view

        output.rows([groups_view.step_summary(step)], form, columns=view.SUMMARY)
    if number is None:
        output.say("nothing was recorded (--dry-run)")
    else:
        output.say(f"recorded as group:{number}; `policy explain group:{number}` says why")
    return Exit.OK
