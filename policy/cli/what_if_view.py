"""What `policy what-if` prints: the steps as a tree or as rows, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from policy.cli import output

if TYPE_CHECKING:
    from policy.audit.cascade import CascadeStep
    from policy.decision.groups import GroupDecision

_COLUMNS: Final = ("step", "cause", "depth", "pod", "was", "priority", "outcome", "node", "victims")
_RIGHT: Final = ("step", "cause", "depth", "priority")


def show(steps: Sequence[CascadeStep], ids: Mapping[int, int | str], form: str) -> None:
    """The steps on standard output. ids: under which they were recorded, by number."""
    from policy.audit.cascade import step_line

    if form == "table":
        for line in _tree(steps):
            output.line(line)
    else:
        lines = [step_line(step, decision_id=ids.get(step.number)) for step in steps]
        output.rows(lines, form, columns=_COLUMNS, right=_RIGHT)


def say_lost(pods: Sequence[str]) -> None:
    """Say which pods do not come back when their nodes are removed."""
    if pods:
        output.say(
            f"{output.number(len(pods), 'pod')} of removed nodes left for good, such as {pods[0]}:"
            " leaving already, or without an owner that makes another one elsewhere"
        )


def sum_up(steps: Sequence[CascadeStep], ids: Mapping[int, int | str]) -> None:
    """What came of it, on standard error."""
    from policy.decision.groups import GroupOutcome
    from policy.decision.model import Outcome

    taken = [step.decision for step in steps if step.decision is not None]
    preempts = (Outcome.PREEMPT, GroupOutcome.PREEMPTING)
    preempting = sum(decision.outcome in preempts for decision in taken)
    placed = (*preempts, Outcome.BIND, GroupOutcome.SCHEDULED)
    nowhere = sum(decision.outcome not in placed for decision in taken)
    beyond = len(steps) - len(taken)
    output.say(
        f"{output.number(len(taken), 'decision')}: {preempting} with preemption, {nowhere} without"
        " a node" + (f"; beyond --depth: {output.number(beyond, 'victim')}" if beyond else "")
    )
    if not ids:
        output.say("nothing was recorded")
    single = [one for one in ids.values() if isinstance(one, int)]
    if single:
        output.say(f"recorded as hypothetical decisions {min(single)} to {max(single)}")
    cycles = [one for one in ids.values() if isinstance(one, str)]
    if cycles:
        output.say(f"recorded as hypothetical cycles of pod groups {cycles[0]} to {cycles[-1]}")


def _tree(steps: Sequence[CascadeStep]) -> Iterator[str]:
    """Every asked pod with the victims of its victims below it."""
    below: dict[int | None, list[CascadeStep]] = {}
    for step in steps:
        below.setdefault(step.cause, []).append(step)

    def walk(step: CascadeStep, first: str, rest: str) -> Iterator[str]:
        yield first + _sentence(step)
        for move in step.budgets:
            yield f"{rest}   budget {move.budget} then allows {move.after} (was {move.before})"
        inner = below.get(step.number, [])
        for i, child in enumerate(inner):
            last = i == len(inner) - 1
            head, tail = ("└─ ", "   ") if last else ("├─ ", "│  ")
            yield from walk(child, rest + head, rest + tail)

    for step in below.get(None, []):
        yield from walk(step, "", "")


def _sentence(step: CascadeStep) -> str:
    from policy.audit import sentences
    from policy.decision.model import Decision

    if step.decision is not None and not isinstance(step.decision, Decision):
        return _group_sentence(step, step.decision)
    who = f"{step.pod} (priority {step.priority})"
    if step.was:
        who = f"{step.was} leaves; {who}"
    if step.decision is None:
        return f"{who} waits"
    decision = step.decision
    found = decision.outcome.value
    if found == "preempt":
        return f"{who} {sentences.preempts(decision.victims, decision.node)}"
    if found == "bind":
        return f"{who} fits on {decision.node}"
    return f"{who} finds no node: {decision.trace.message or found}"


def _group_sentence(step: CascadeStep, decision: GroupDecision) -> str:
    who = f"pod group {step.pod} (priority {step.priority})"
    effects = decision.effects
    found = decision.outcome.value
    if found == "scheduled":
        nodes = ", ".join(f"{pod} on {node}" for pod, node in effects.bind.items())
        return f"{who} starts: {nodes}"
    if found == "preempting":
        leave = ", ".join(victim.pod for victim in decision.victims) or "none"
        return f"{who} preempts; pods that leave: {leave}"
    if found == "not-tried":
        return f"{who} waits: {decision.gated[0].message}"
    return f"{who} does not start: {decision.message}"
