"""When a deleted pod is gone."""

from __future__ import annotations

from typing import Final

from policy.cluster import times
from policy.cluster.objects import Pod

DEFAULT_GRACE_SECONDS: Final = 30


def deletion_time(pod: Pod, *, now_ms: int) -> str:
    """The deletion timestamp of a pod that is deleted now: when it will be forced, RFC 3339.

    Raises TimeError where that is later than a time can be.
    """
    grace = pod.spec.termination_grace_period_seconds
    # A negative period is treated as one second (the API server's CheckGracefulDelete).
    seconds = DEFAULT_GRACE_SECONDS if grace is None else grace if grace >= 0 else 1
    try:
        text = times.to_text(now_ms + seconds * 1000)
    except OverflowError:
        text = None
    if text is None:
        key = f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
        raise times.TimeError(
            f"pod `{key}` would be gone after the year 9999: it has {seconds} s of grace"
        )
    return text
