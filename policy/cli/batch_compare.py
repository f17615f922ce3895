"""`policy batch compare`, `policy batch what-if`"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from policy.cli import env, options, output, rule_files, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.batch.result import SessionResult
    from policy.batch.rules import BatchRules
    from policy.cluster.snapshot import Snapshot
    from policy.store import LoadedState


_Function = TypeVar("_Function", bound=Callable[..., Any])

DEFAULT_RULES: Final = "kube-batch"


def batch_rules_option(function: _Function) -> _Function:
    """`--rules` of commands that hold sessions, with `--rules-root`"""
    found = click.option(
        "--rules",
        metavar="NAME|PATH|DIGEST",
        shell_complete=options.proposing("batch_rules"),
        default=DEFAULT_RULES,
        help="Shipped batch rules, a rule file, a configuration file of kube-batch or Volcano,"
        " or `sha256:...` of rules in the database.",
    )(function)
    return rule_files.rules_root_option(found)


def anyway_option(function: _Function) -> _Function:
    """`--anyway`"""
    return click.option(
        "--anyway",
        is_flag=True,
        help="Hold the session although nothing that is left of the configuration divides the"
        " cluster among its queues.",
    )(function)


def require_division(rules: BatchRules, *, anyway: bool) -> None:
    """Raises Misused for rules of which nothing that is left divides the cluster."""
    if not (anyway or rules.divides):
        raise options.Misused(
            "nothing that is left of the configuration divides the cluster among its queues: "
            + ", ".join(rules.unmodelled),
            help="`--anyway` holds the session all the same: queues then take what they can get",
        )


def say_left_out(snapshot: Snapshot, *rules: BatchRules) -> None:
    """Pods that wait, and that a session of the rules leaves to others, or never sees."""
    unplaced = [pod for pod in snapshot.pods if pod is not None and not pod.spec.node_name]
    for name in dict.fromkeys(one.naming.scheduler for one in rules):
        ours = [pod for pod in unplaced if pod.spec.scheduler_name == name]
        if waiting := len(unplaced) - len(ours):
            output.say(
                f"{output.number(waiting, 'pending pod')} left out: only those with"
                f" `schedulerName: {name}` take part"
            )
        if without_phase := sum(not pod.status.phase for pod in ours):
            output.say(
                f"{output.number(without_phase, 'pod')} without a phase left out: only those with"
                " `status.phase: Pending` take part, as an API server makes them"
            )


@click.command("compare")
@click.argument("id", metavar="ID", type=click.IntRange(1))
@click.option(
    "--rules",
    metavar="NAME|PATH|DIGEST",
    shell_complete=options.proposing("batch_rules"),
    default="",
    show_default=False,
    help="Batch rules to hold the session with again: shipped ones, a file, or `sha256:...` of"
    " rules in the database.",
)
@rule_files.rules_root_option
@env.env_option
@options.db_option
@anyway_option
@options.output_option
def compare(id: int, rules: str, environment: str, db: str, anyway: bool, form: str) -> int:
    """Hold a recorded session again under other rules, and show what becomes of pods.

    The state and the time are those of the recorded session. Listed are the pods that are bound,
    promised room or evicted otherwise, and the jobs that wait for another reason. The exit status
    is 5 where anything differs.

    \b
    Example:
      policy batch run --rules kube-batch-sample
      policy batch compare 1 --rules batch-safe
    """
    from policy.audit.inputs import Incomplete
    from policy.audit.session_replay import SessionReplayer
    from policy.batch.run import run_session

    if not (rules or environment):
        raise options.Misused("give the other rules with `--rules` or `--env`")
    given = env.batch_given(environment, rules, db=db)
    with session.open_store(db) as store:
        chosen = env.chosen_batch(store, environment=environment, cluster="", given=given)
        other = chosen.rules
        require_division(other, anyway=anyway)
        row = store.read.session(id, kind="batch").row
        try:
            snapshot, recorded = SessionReplayer(store).inputs_of(row)
        except Incomplete as exc:
            output.say(f"session {id} cannot be held again: {exc}")
            return Exit.ERROR
    before, after = run_session(snapshot, recorded), run_session(snapshot, other)
    say_left_out(snapshot, recorded, other)
    return _shown(before, after, recorded.name, other.name, form)


@click.command("what-if")
@click.option(
    "--file",
    "files",
    metavar="FILE|-",
    shell_complete=options.proposing("files"),
    multiple=True,
    help="Suppose these objects: added, or in place of those of the same name.",
)
@click.option(
    "--remove-node",
    "nodes",
    metavar="NAME",
    multiple=True,
    help="Suppose that this node is gone; its pods with an owner come back and wait.",
)
@batch_rules_option
@env.env_option
@options.db_option
@options.cluster_option
@options.now_option
@anyway_option
@options.output_option
def what_if(
    files: tuple[str, ...],
    nodes: tuple[str, ...],
    rules: str,
    environment: str,
    db: str,
    cluster: str | None,
    now: datetime | None,
    anyway: bool,
    form: str,
) -> int:
    """Show what a session would decide otherwise if something were different.

    A session is held on the cluster's newest state as it is, and on the supposed one. Nothing is
    recorded or changed. The exit status is 0 whether or not anything differs.

    \b
    Example:
      policy batch what-if --remove-node node-1
      policy batch what-if --remove-node node-1 --rules volcano
    """
    from policy.audit.session_compare import with_objects
    from policy.audit.what_if import Supposition, suppose
    from policy.batch.run import run_session
    from policy.cli.what_if_view import say_lost
    from policy.manifests import read

    if not files and not nodes:
        raise options.Misused("nothing is supposed", help="give `--file` or `--remove-node`")
    now_ms = options.millis(now)
    given = env.batch_given(environment, rules, db=db)
    with session.open_store(db) as store:
        chosen = env.chosen_batch(store, environment=environment, cluster=cluster, given=given)
        found = chosen.rules
        require_division(found, anyway=anyway)
        state = store.state.load(chosen.cluster)
    snapshot = _snapshot_of(state, session.clock_ms() if now_ms is None else now_ms)
    without_nodes = suppose(snapshot, Supposition(removed_nodes=nodes))
    supposed = without_nodes.snapshot
    if files:
        supposed = with_objects(supposed, read(files, stdin=session.standard_input()).objects)
    before, after = run_session(snapshot, found), run_session(supposed, found)
    say_left_out(supposed, found)
    _shown(before, after, "as it is", "supposed", form)
    say_lost(without_nodes.lost)
    output.say(
        f"both sessions by rule set {found.name}, on revision {state.revision}"
        f" of cluster {chosen.cluster}"
    )
    return Exit.OK


def _snapshot_of(state: LoadedState, now_ms: int) -> Snapshot:
    from policy.cluster.snapshot import Snapshot

    return Snapshot.from_objects(state.objects, now_ms=now_ms, state_digest=state.state_digest)


def _shown(before: SessionResult, after: SessionResult, one: str, other: str, form: str) -> int:
    """Print the differences of two sessions; 5 where there are any."""
    from policy.audit.session_compare import changes

    found = changes(before, after)
    names = (one, other) if one != other else ("before", "after")
    keys = names if form == "table" else ("before", "after")
    rows = [{"subject": c.subject, keys[0]: c.before, keys[1]: c.after} for c in found]
    output.rows(rows, form, columns=("subject", *keys))
    output.say(f"{output.number(len(found), 'difference')}" if found else "no difference")
    return Exit.DIFFERS if found else Exit.OK
