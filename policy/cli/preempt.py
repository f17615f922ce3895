"""`policy preempt`"""

from __future__ import annotations

from datetime import datetime

import click

from policy.cli import env, options, output, session
from policy.cli.exits import Exit


@click.command("preempt")
@click.argument("pod", metavar="NAMESPACE/NAME")
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
    db: str,
    cluster: str,
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

    \b
    Example:
      policy preempt default/web-1
      policy preempt default/web-1 --dry-run --rules kube-1.28 --output json
    """
    from policy.cli import view
    from policy.decision.record import record_of
    from policy.extenders.client import HttpExtenders
    from policy.scheduling.cycle import Scheduler
    from policy.store import StoredDecision
    from policy.store.journal import StoreJournal

    clock = session.deciding_at(now)
    key = pod if "/" in pod else f"default/{pod}"
    with session.open_store(db, write=not dry_run) as store:
        chosen = env.chosen(store, environment=environment, cluster=cluster, rules=rules)
        journal = StoreJournal(
            store,
            chosen.cluster,
            actor=session.actor(),
            clock=session.clock_ms,
            environment=chosen.environment,
        )
        scheduler = Scheduler(
            journal,
            chosen.rules,
            clock=clock,
            seed=seed,
            dry_run=dry_run,
            extenders=HttpExtenders(),
        )
        session.tell_of_projections(chosen.rules, scheduler.state.snapshot)
        base = scheduler.state.revision
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
    if step.recording is None:
        output.say("nothing was recorded (--dry-run)")
    else:
        output.say(
            f"recorded as decision {stored.row.id}; `policy explain {stored.row.id}` says why"
        )
    return Exit.OK
