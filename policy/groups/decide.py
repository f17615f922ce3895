"""`decide_group`: one scheduling cycle of a pod group, as a pure function.

1. Who takes part (`members.py`). 2. A pass on the cluster as it is (`passes.py`). 3. Success: the
placed members are bound. 4. Otherwise group preemption (`preemption.py`), or, where groups do not
preempt as one, what the members preempted within the pass. 5. What follows (`conclude.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from policy.cluster.leaving import deletion_time
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import NO_GROUP_EFFECTS, GroupDecision, GroupEffects, GroupOutcome
from policy.decision.model import RuleFired
from policy.groups.columns import fast_passes
from policy.groups.conclude import Conclusion, conclude, error, not_tried
from policy.groups.members import mixed_schedulers, muster
from policy.groups.passes import CycleInputs, Passes, PlainPasses
from policy.groups.preemption import Preempted, preempt
from policy.preemption.decide import DecisionError, NotInCluster, cause_of
from policy.rules.ruleset import RuleSet

OTHER_FAILED: Final = "failed to schedule other pod from a pod group"
GONE: Final = 'failed to get pod group object: podgroup.scheduling.k8s.io "{name}" not found'
MakePasses = Callable[[CycleInputs], Passes]


def decide_group(snapshot: Snapshot, rules: RuleSet, group: str, *, seed: int = 0) -> GroupDecision:
    """What one scheduling cycle does with the pod group `group` (namespace/name).

    A pure function, as `decide` is: equal arguments give equal decisions. Raises DecisionError
    where no pod names such a group, and where the rule set has no `groups`.
    """
    return decide_group_by(fast_passes, snapshot, rules, group, seed=seed)


def decide_group_by(
    passes: MakePasses, snapshot: Snapshot, rules: RuleSet, group: str, *, seed: int = 0
) -> GroupDecision:
    """`decide_group` with another way to run passes; the decision is the same."""
    if rules.groups is None:
        raise DecisionError(f"rule set `{rules.name}` does not schedule pod groups")
    if rules.extenders:
        raise DecisionError(f"rule set `{rules.name}` names extenders, which groups do not query")
    found = muster(snapshot, group, rules.groups)
    if not (found.members or found.gated or found.assigned or found.group):
        raise NotInCluster(f"pod group `{group}`")
    task = CycleInputs.of(snapshot, rules, rules.groups, found, seed=seed)
    try:
        return _run(task, passes)
    except (AssertionError, MemoryError):
        raise
    # Whatever is wrong with one group, the next one is decided; the row says that this was not.
    except Exception as exc:  # noqa: BLE001  # the outermost frame of one group's decision
        return _decision(task, error(task, f"cannot be decided: {cause_of(exc)}"))


def _run(task: CycleInputs, make: MakePasses) -> GroupDecision:
    found, groups = task.muster, task.groups
    if not found.members:
        return _decision(task, not_tried())
    wrong = mixed_schedulers(found.members)
    if wrong:
        return _decision(task, error(task, wrong))
    if groups.gates.workload_aware_preemption or not len(task.snapshot.nodes):
        passes = make(task)
        first = passes.run(whole=True)
    else:
        first = PlainPasses(task).preempting()
    failed = {position: m.error for position, m in first.misfits.items() if m.error}
    if failed:
        text = f"{OTHER_FAILED}: {next(iter(failed.values()))}"
        return _decision(task, error(task, text, failed))
    preempted: Preempted | None = None
    fits = first.success and not first.decisions_preempt
    if not fits and groups.gates.workload_aware_preemption:
        if found.group is None:
            return _decision(task, error(task, GONE.format(name=found.key.split("/", 1)[1])))
        preempted = preempt(task, lambda: passes)
    conclusion = conclude(task, first, preempted)
    _require_writable(task.snapshot, conclusion.effects)
    return _decision(task, conclusion, preempted)


def _require_writable(snapshot: Snapshot, effects: GroupEffects) -> None:
    """Raises TimeError where an effect could not be written: a deletion time out of range."""
    for key in effects.evict:
        pod = snapshot.pod(key)
        assert pod is not None  # a victim is a pod of the snapshot
        if not pod.metadata.deletion_timestamp:
            deletion_time(pod, now_ms=snapshot.now_ms)


def _decision(
    task: CycleInputs, conclusion: Conclusion, preempted: Preempted | None = None
) -> GroupDecision:
    found, snapshot = task.muster, task.snapshot
    fired: tuple[RuleFired, ...] = () if preempted is None else preempted.fired
    effects = conclusion.effects
    if conclusion.outcome is GroupOutcome.NOT_TRIED:
        assert effects == NO_GROUP_EFFECTS
    return GroupDecision(
        group=found.key,
        group_uid="" if found.group is None else found.group.metadata.uid,
        group_priority=found.priority,
        min_count=found.min_count,
        policy=found.policy,
        assigned=len(found.assigned),
        rule_set=task.rules.name,
        rule_set_digest=task.rules.digest,
        snapshot_digest=snapshot.digest,
        history=snapshot.history,
        now_ms=snapshot.now_ms,
        seed=task.seed,
        outcome=conclusion.outcome,
        code=conclusion.code,
        message=conclusion.message,
        members=conclusion.members,
        gated=found.gated,
        rules=fired,
        preemption=None if preempted is None else preempted.result,
        victims=conclusion.victims,
        effects=effects,
    )
