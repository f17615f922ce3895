"""How long the pods of a trace work, from what was seen of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

from policy.cluster import times
from policy.cluster.objects import Pod
from policy.preemption.columns import workload_of
from policy.simulation.options import Durations
from policy.simulation.trace import TracePod
from policy.text.words import number


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRuntime:
    """What was seen of one pod. Milliseconds since 1970 UTC."""

    pod: Pod
    arrives_ms: int
    ends_ms: (
        int | None
    )  #: it finished, failed or was deleted then; not before it came or got a node
    ran_from_ms: int | None  #: the last time that it got a node while it was watched
    truth: bool  #: it is known when pods got their nodes


def tasks(
    known: Iterable[KnownRuntime], *, start_ms: int, durations: Durations
) -> tuple[list[TracePod], list[str]]:
    """The work of every pod, and notes on what was filled in.

    1. The work of a pod is its last run: from the instant at which it last got its node to its end.
       Where nothing tells when pods got their nodes, it is from its arrival to its end.
    2. A pod that never got a node and ended all the same was withdrawn: it is taken away at that
       instant, whether it runs in the simulation or not.
    3. A pod that runs at the start has left what it had left then; evicted and begun anew, it has
       to do its whole work, from its start time where it has one.
    4. A pod whose end was not seen: see `Durations`.
    """
    seen = list(known)
    found = [_task(one, start_ms) for one in seen]
    notes = []
    censored = sum(task.censored for task in found)
    if censored and durations is Durations.SIBLINGS:
        found, estimated = _by_siblings(found)
        notes.append(
            f"the end of {number(censored, 'pod')} is not known; run time: the median of the pods"
            f" of the workload for {estimated}, until the simulation ends for"
            f" {censored - estimated}"
        )
    elif censored:
        notes.append(
            f"the end of {number(censored, 'pod')} is not known; run time: until the simulation"
            " ends"
        )
    withdrawn = sum(task.withdrawn_ms is not None for task in found)
    if withdrawn:
        are = "is" if withdrawn == 1 else "are"
        notes.append(
            f"{number(withdrawn, 'pod')} ended without having run, and {are} withdrawn then"
        )
    return sorted(found, key=lambda task: task.arrives_ms), notes


def _task(one: KnownRuntime, start_ms: int) -> TracePod:
    pod = one.pod
    if pod.spec.node_name:
        return _running(one, start_ms)
    if one.ends_ms is None:
        return TracePod(pod=pod, arrives_ms=one.arrives_ms, work_ms=None, censored=True)
    if one.truth and one.ran_from_ms is None:
        return TracePod(pod=pod, arrives_ms=one.arrives_ms, work_ms=None, withdrawn_ms=one.ends_ms)
    since = one.arrives_ms if one.ran_from_ms is None else one.ran_from_ms
    return TracePod(pod=pod, arrives_ms=one.arrives_ms, work_ms=one.ends_ms - since)


def _running(one: KnownRuntime, start_ms: int) -> TracePod:
    pod = one.pod
    if one.ends_ms is None:
        return TracePod(pod=pod, arrives_ms=start_ms, work_ms=None, left_ms=None, censored=True)
    began = times.parse_optional(pod.status.start_time)
    since = start_ms if began == times.MISSING else min(began, start_ms)
    left = one.ends_ms - start_ms
    work = one.ends_ms - since
    if one.ran_from_ms is not None:  # it was evicted and began anew
        left = work = one.ends_ms - one.ran_from_ms
    return TracePod(pod=pod, arrives_ms=start_ms, work_ms=work, left_ms=left)


def _by_siblings(found: Sequence[TracePod]) -> tuple[list[TracePod], int]:
    """Unknown work as the median of the workload's pods that ended; how many got one."""
    ended: dict[str, list[int]] = {}
    for task in found:
        if task.work_ms is not None and not task.censored:
            ended.setdefault(workload_of(task.pod), []).append(task.work_ms)
    estimated = 0
    result = []
    for task in found:
        siblings = ended.get(workload_of(task.pod)) if task.censored else None
        if siblings:
            estimated += 1
            work = median_low(siblings)
            left = work if task.running else None
            result.append(
                TracePod(
                    pod=task.pod,
                    arrives_ms=task.arrives_ms,
                    work_ms=work,
                    left_ms=left,
                    censored=True,
                )
            )
        else:
            result.append(task)
    return result, estimated
