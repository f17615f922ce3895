"""Sentences about a session, for people: the edge at which codes become words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from policy.batch.limits import Limit, LimitKind
from policy.batch.nodes import Refusal
from policy.batch.recording import (
    ChoiceRule,
    NodeAnswer,
    NodeChoice,
    Reason,
    Rejection,
    TaskStep,
)
from policy.batch.result import JobReason, SessionResult
from policy.batch.trials import PlacementTrial
from policy.text.words import number, rounded

_JOB: Final[Mapping[Reason, str]] = {
    Reason.LEFT_OUT: "its queue or its pod group does not exist",
    Reason.TOO_FEW_TASKS: "it has fewer pods than its minimum",
    Reason.QUEUE_OVERUSED: "its queue already has what it deserves",
    Reason.WAITS_FOR_RELEASE: "it is promised room that is still being released",
    Reason.GANG_INCOMPLETE: "not enough of its pods found a node to start together",
    Reason.NO_NODE: "there is no node for one of its pods",
    Reason.NOT_TRIED: "no action came to it",
    Reason.NOT_ENQUEUED: "its group was not let into its queue",
    Reason.QUEUE_LIMIT: "its queue may not take one of its pods",
    Reason.SATISFIED: "it has its minimum, and may evict for no more",
}

_RULE: Final[Mapping[LimitKind, str]] = {
    LimitKind.STATE: "queue {subject} is not open",
    LimitKind.CAPABILITY: "queue {subject} would pass its capability",
    LimitKind.DESERVED: "queue {subject} would hold more than it deserves",
    LimitKind.NOT_A_LEAF: "queue {subject} has queues below it and takes no pods itself",
    LimitKind.HIERARCHY: "the queues form no tree at {subject}",
    LimitKind.OVERCOMMIT: "the groups let in would ask for more than the cluster may give",
    LimitKind.AT_DESERVED: "queue {subject} holds no more than it deserves",
    LimitKind.BELOW_DESERVED: "queue {subject} would be left with less than it deserves",
    LimitKind.GUARANTEE: "queue {subject} would be left with less than it is guaranteed",
    LimitKind.FREES_NOTHING: "it frees nothing of what is asked for",
    LimitKind.SHARED_ANCESTOR: "both queues are below {subject}, and neither deserves any of it",
    LimitKind.QUOTA: "quota {subject} of the namespace would be passed",
    LimitKind.VOTE: "rejected",
}
"""What a plugin's no means; the numbers follow."""

_NO_LIMIT: Final = 1e300

_NODE: Final[Mapping[str, str]] = {
    Reason.NO_ROOM: "too little room",
    Reason.NO_POTENTIAL_VICTIMS: "there is no pod to evict",
    Reason.VICTIMS_VETOED: "everybody there is spared",
    Reason.NOT_ENOUGH_VICTIMS: "too little room even after evictions",
    Reason.CHOSEN: "chosen",
    "pods": "no further pod allowed",
    "node-conditions": "not ready",
    "node-unschedulable": "cordoned",
    "node-affinity": "node selector or affinity",
    "node-ports": "host port taken",
    "taints": "taint not tolerated",
    "node-pressure": "under pressure",
    "pod-affinity": "pod affinity",
    "topology-spread": "topology spread",
    "volume-limits": "too many volumes",
    "volume-zone": "a volume is in another zone",
    "volume-binding": "a volume cannot be used there",
    "nodegroup": "node group",
    "tdm": "revocable node",
}

_REFUSED: Final[Mapping[Refusal, str]] = {
    Refusal.OTHER_NODE: "the pod names another node",
    Refusal.HERE: "the pod is on the node already",
    Refusal.NO_ROOM: "too little room",
}


def why_waiting(result: SessionResult, job: str) -> list[str]:
    """Why tasks of a job still wait after the session; empty where none does."""
    found = result.reasons.get(job)
    return [] if found is None else list(waiting_in_words(found, result.taken_back.get(job, ())))


def waiting_in_words(reason: JobReason, taken_back: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Why tasks of a job still wait; taken_back: of the job, as `evictions_taken_back` has it."""
    yield (
        f"{reason.job} (queue {reason.queue or 'unknown'}): {_JOB[reason.reason]};"
        f" minimum {reason.minimum}, ready {reason.ready}, promised {reason.waiting},"
        f" pending {reason.pending}"
    )
    rejection = reason.rejection
    if rejection is not None and rejection.limit is not None:
        yield f"{reason.action or 'every action'}: {limit_in_words(rejection.limit)}"
    elif rejection is not None:
        yield f"{reason.action} found no node for {reason.task}: {_counts(rejection)}"
        for answer in rejection.answers:
            yield from _answer(answer)
    for action, evicted in taken_back:
        yield f"{action} evicted {evicted} in trial and took all of it back"


def step_in_words(step: TaskStep) -> str:
    """Why a step had no effect, or why a task got its node; "" where nothing more is known."""
    if step.rejection is not None and step.rejection.limit is not None:
        return limit_in_words(step.rejection.limit)
    if step.rejection is not None:
        return _counts(step.rejection)
    if step.refusal is not None:
        return _REFUSED[step.refusal]
    return "" if step.choice is None else choice_in_words(step.choice)


def spared_in_words(steps: Iterable[TaskStep]) -> Iterator[str]:
    """Which plugin spared which pods; what follows a line of two blanks more is about it."""
    for step in steps:
        rejection = step.rejection
        answers: tuple[NodeAnswer, ...] = () if rejection is None else rejection.answers
        if step.answer is not None:
            answers = (step.answer, *answers)
        for answer in answers:
            for plugin, spared in answer.vetoes.items():
                yield (
                    f"step {step.position + 1}, {answer.node}: {plugin} spares {', '.join(spared)}"
                )
            for protection in answer.protections:
                yield f"  {protection.task}: {limit_in_words(protection.limit)}"
        if rejection is not None and not answers:
            for plugin, pods in rejection.vetoes.items():
                spared_pods = number(pods, "pod")
                yield f"step {step.position + 1}: {plugin} spares {spared_pods} on all nodes"


def limit_in_words(limit: Limit) -> str:
    """Which plugin of which tier said no, for which limit, with the numbers."""
    what = _RULE[limit.rule].format(subject=limit.subject)
    tier = f"tier {limit.tier + 1}, " if limit.tier >= 0 else ""
    among = [name for name in limit.exceeded or tuple(limit.asked) if name in limit.asked]
    numbers = [_kept(limit, name) if limit.spares else _taken(limit, name) for name in among]
    return f"{tier}{limit.plugin}: {what}" + (f" ({'; '.join(numbers)})" if numbers else "")


def _taken(limit: Limit, name: str) -> str:
    return (
        f"{name} in use {_amount(name, limit.used.get(name, 0.0))}"
        f" of {_amount(name, limit.allowed.get(name, 0.0))},"
        f" asked for {_amount(name, limit.asked[name])},"
        f" {_amount(name, limit.left[name])} left"
    )


_KEEPS: Final[Mapping[LimitKind, str]] = {
    LimitKind.GUARANTEE: "guaranteed",
    LimitKind.FREES_NOTHING: "asked for",
}


def _kept(limit: Limit, name: str) -> str:
    return (
        f"{name} in use {_amount(name, limit.used.get(name, 0.0))},"
        f" {_KEEPS.get(limit.rule, 'deserved')} {_amount(name, limit.allowed.get(name, 0.0))},"
        f" {_amount(name, limit.kept[name])} would be left"
    )


def choice_in_words(choice: NodeChoice) -> str:
    """Why a task got its node and no other."""
    passed = ""
    if choice.passed_over:
        passed = f"; {number(choice.passed_over, 'node')} before it yielded too little room"
    if choice.rule is ChoiceRule.NOMINATED:
        return "the node that the pod is nominated to"
    if choice.rule is ChoiceRule.ONLY:
        return "the only node that could be used"
    if choice.rule is ChoiceRule.FEWEST_LOSSES:
        return f"of {choice.nodes} nodes the one with the least important victims"
    if choice.rule is ChoiceRule.NAME_ORDER:
        return f"{choice.nodes} nodes are tried in name order{passed}"
    score = f"score {float(choice.score):.6g}"
    if choice.rule is ChoiceRule.SCORE:
        return f"{score}, no other of {choice.nodes} nodes has it{passed}"
    others = ", ".join(choice.equal) + (", ..." if choice.ties > len(choice.equal) else "")
    end = "first" if choice.rule is ChoiceRule.FIRST_NAME else "last"
    return (
        f"{score}, as {choice.ties} other{'s' * (choice.ties > 1)} of {choice.nodes} nodes"
        f" ({others}): the {end} by name is taken{passed}"
    )


def trial_in_words(trial: PlacementTrial) -> list[str]:
    """What an attempt to place a task had against one node, and how it scored."""
    return [f"{trial.action} of {trial.task} on {trial.node}: {_verdict(trial)}", *_details(trial)]


def _verdict(trial: PlacementTrial) -> str:
    if trial.rejected_by:
        return "rejected, " + ", ".join(_NODE.get(name, name) for name in trial.rejected_by)
    if trial.answer is not None and not trial.fits:
        enough = trial.answer.verdict is Reason.CHOSEN
        return "enough room after evictions" if enough else _NODE[trial.answer.verdict]
    if not trial.fits:
        return "too little room"
    if trial.best == trial.node:
        return "the best node"
    here, there = trial.score
    if here == there:
        return f"it could be used, and scores as high as {trial.best}, which comes first by name"
    return f"it could be used, and {trial.best} scores higher"


def _details(trial: PlacementTrial) -> Iterator[str]:
    for name, room in trial.room.items():
        if name != "pods" or room.idle < room.asked:
            yield (
                f"  {name}: asked for {_amount(name, room.asked)}, idle {_amount(name, room.idle)},"
                f" being released {_amount(name, room.released)}"
            )
    scores = dict(trial.scores)
    if len(scores) > 1:
        scores["in all"] = trial.score
    for name, (here, there) in scores.items():
        best = "" if trial.best == trial.node else f", {trial.best} {there:.6g}"
        yield f"  {name}: scores {here:.6g}{best}"
    if trial.answer is not None:
        _, *spared = _answer(trial.answer)
        yield from spared


def _amount(name: str, value: float) -> str:
    """In the units that people write: cores, Gi, pods."""
    if value >= _NO_LIMIT:
        return "no limit"
    name = name.removeprefix("requests.")
    if name == "memory":
        return f"{rounded(value / 2**30, 4)}Gi"
    return rounded(value if name == "pods" else value / 1000, 4)


def _counts(rejection: Rejection) -> str:
    return ", ".join(
        f"{number(nodes, 'node')}: {_NODE.get(reason, reason)}"
        for reason, nodes in sorted(rejection.nodes.items(), key=lambda item: (-item[1], item[0]))
    )


def _answer(answer: NodeAnswer) -> Iterator[str]:
    tier = "" if answer.tier is None or answer.tier < 0 else f", tier {answer.tier + 1} decided"
    yield f"  on {answer.node}: {_NODE[answer.verdict]}{tier}"
    for plugin, spared in answer.vetoes.items():
        yield f"    {plugin} spares {', '.join(spared)}"
    for protection in answer.protections:
        yield f"    {protection.task}: {limit_in_words(protection.limit)}"
