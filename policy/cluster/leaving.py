"""Since when a deleted pod is leaving, and when it is gone."""

from __future__ import annotations

from typing import Final

from policy.cluster import times
from policy.cluster.objects import Pod, key_of

DEFAULT_GRACE_SECONDS: Final = 30


def deletion_time(pod: Pod, *, now_ms: int) -> str:
    """The deletion timestamp of a pod that is deleted now: when it will be forced, RFC 3339.

    Raises TimeError where that is later than a time can be.
    """
    seconds = _grace_seconds(pod)
    try:
        text = times.to_text(now_ms + seconds * 1000)
    except OverflowError:
        text = None
    if text is None:
        raise times.TimeError(
            f"pod `{key_of(pod)}` would be gone after the year 9999: it has {seconds} s of grace"
        )
    return text


def leaving_since_ms(pod: Pod) -> int:
    """When a leaving pod was asked to go; `times.MISSING` for a pod that is not leaving.

    Milliseconds since 1970 UTC. The time of its condition DisruptionTarget where a preemption set
    one, else the deletion timestamp less the pod's grace period, as an API server computes it.
    """
    gone = times.parse_optional(pod.metadata.deletion_timestamp)
    if gone == times.MISSING:
        return gone
    for condition in pod.status.conditions or ():
        if (
            condition.type == "DisruptionTarget"
            and condition.status == "True"
            and condition.last_transition_time
        ):
            return times.parse(condition.last_transition_time)
    return max(times.EARLIEST, gone - _grace_seconds(pod) * 1000)


def _grace_seconds(pod: Pod) -> int:
    grace = pod.spec.termination_grace_period_seconds
    # A negative period is treated as one second (the API server's CheckGracefulDelete).
    return DEFAULT_GRACE_SECONDS if grace is None else grace if grace >= 0 else 1
