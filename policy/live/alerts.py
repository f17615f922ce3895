"""What somebody may want to be woken for, as JSON for a program or a URL (docs/follow.md).

Told are: an observed preemption whose verdict is `other`; one that violated a budget; a workload
that was hit so many times in so long; a victim that the environment's active rules protect; a gap.
"""

from __future__ import annotations

import queue
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import urllib3

from policy.audit.observed.again import AgainDecider, CannotDecide
from policy.cluster import times
from policy.cluster.objects import workload_key
from policy.live.figures import Occasion
from policy.preemption.denials import denials
from policy.rules import RuleSet
from policy.store import Store
from policy.store.observed import ObservationRow, VerdictClass

_MOST_WAITING: Final = 1000
_SECONDS: Final = 10.0
_PAUSES: Final = (1.0, 5.0)
"""Seconds before the second and the third try: a receiver that starts anew is away for a while."""

_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When a workload counts as hit too often."""

    hits: int = 3
    seconds: int = 3600


def alerts_of(
    store: Store,
    cluster: str,
    occasion: Occasion,
    *,
    rules: RuleSet | None,
    thresholds: Thresholds,
) -> Iterator[dict[str, Any]]:
    """The alerts that follow from what happened; rules: the active ones of an environment."""
    gap = occasion.gap
    if gap is not None:
        yield {
            "alert": "gap",
            "cluster": cluster,
            "kind": gap.kind,
            "reason": gap.reason,
            "since": None if gap.since_ms is None else times.to_text(gap.since_ms),
            "until": times.to_text(gap.until_ms),
        }
    for row in occasion.observations:
        yield from _of_observation(store, cluster, row, rules, thresholds)


def _of_observation(
    store: Store, cluster: str, row: ObservationRow, rules: RuleSet | None, limit: Thresholds
) -> Iterator[dict[str, Any]]:
    about = {
        "cluster": cluster,
        "observation": row.id,
        "at": times.to_text(row.now_ms),
        "preemptor": row.preemptor,
        "node": row.node,
        "victims": [victim.victim for victim in row.victims],
        "confidence": row.confidence,
    }
    if row.verdict == VerdictClass.OTHER:
        yield {"alert": "verdict-other", **about, "reason": row.reason}
    broken = [victim.victim for victim in row.victims if victim.pdb_violating]
    if broken:
        yield {"alert": "budget-violated", **about, "pods": broken}
    needs = [("preemptedCount", limit.seconds)]
    (counts,) = store.read.history(cluster, needs, now_ms=row.now_ms).values()
    for workload in sorted({workload_key(v.victim, v.owner) for v in row.victims}):
        hits = counts.get(workload, 0)
        if hits >= limit.hits:
            yield {
                "alert": "workload-hit-again",
                **about,
                "workload": workload,
                "hits": hits,
                "seconds": limit.seconds,
            }
    if rules is not None:
        yield from _protected(store, row, rules, about)


def _protected(
    store: Store, row: ObservationRow, rules: RuleSet, about: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    try:
        _, snapshot = AgainDecider(store).decide(row, rules)
    except CannotDecide:
        return
    if snapshot.row(row.preemptor) is None:
        return  # a pod group: rules about groups name units, and are part of its decision
    denied = denials(snapshot, rules, row.preemptor)
    for victim in row.victims:
        denial = denied.get(victim.victim)
        if denial is not None:
            yield {
                "alert": "protected-victim",
                **about,
                "pod": victim.victim,
                "rules": rules.name,
                "rule": denial.rule,
                "reason": denial.reason,
            }


class BadTarget(ValueError):
    """Alerts cannot be given to what is named."""


class Sender:
    """Gives alerts to a program (as JSON on its standard input) or posts them to a URL.

    In a thread of its own: whoever follows a cluster does not wait for it. What cannot be
    delivered is reported.
    """

    def __init__(self, target: str, report: Callable[[str], None]) -> None:
        """Raises BadTarget for what is neither a URL of HTTP nor a program that can be run."""
        self._post_to = "://" in target
        _check(target, url=self._post_to)
        self._target = target
        self._report = report
        self._waiting: queue.Queue[dict[str, Any]] = queue.Queue(_MOST_WAITING)
        self._closing = threading.Event()
        self._settling = threading.Lock()  #: what becomes of an alert is counted and said at once
        self._unsettled = 0  #: alerts of which nothing was said, and that may not be delivered yet
        self._ended = False  #: has `close` said what is left?
        self._pool = urllib3.PoolManager(retries=False, timeout=_SECONDS)
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
        self._thread.start()

    def send(self, alert: dict[str, Any]) -> None:
        with self._settling:
            try:
                self._waiting.put_nowait(alert)
            except queue.Full:
                self._report(f"alert `{alert['alert']}` is dropped: {_MOST_WAITING} wait already")
            else:
                self._unsettled += 1

    def close(self) -> None:
        """Deliver what waits, within a few seconds; say how much of it could not be.

        Nothing is reported after it.
        """
        self._closing.set()
        self._thread.join(_SECONDS)
        with self._settling:
            self._ended = True
            left = self._unsettled
        if left:
            what = "1 alert was" if left == 1 else f"{left} alerts were"
            self._report(f"{what} not delivered before the end")

    def _run(self) -> None:
        while not (self._closing.is_set() and self._waiting.empty()):
            try:
                alert = self._waiting.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            problem = self._deliver(alert)
            with self._settling:
                if self._ended:
                    return  # it is among those that `close` has counted
                self._unsettled -= 1
                if problem:
                    self._report(f"alert `{alert['alert']}` was not delivered: {problem}")

    def _deliver(self, alert: dict[str, Any]) -> str:
        """Why it could not be delivered; empty where it was."""
        body = msgspec.json.encode(alert)
        problem = ""
        for pause in (0.0, *_PAUSES):
            self._closing.wait(pause)  # the end does not wait for somebody to come back
            problem = self._post(body) if self._post_to else self._exec(body)
            if not problem:
                break
        return problem

    def _post(self, body: bytes) -> str:
        try:
            answer = self._pool.request(
                "POST", self._target, body=body, headers={"Content-Type": "application/json"}
            )
        except urllib3.exceptions.HTTPError as exc:
            return str(exc)
        if answer.status < 300:
            return ""
        moved = answer.headers.get("Location", "") if answer.status < 400 else ""
        to = f" to {moved}, and redirects are not followed" if moved else ""
        return f"status {answer.status}{to}"

    def _exec(self, body: bytes) -> str:
        try:
            done = subprocess.run(
                [self._target],
                input=body + b"\n",
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            return str(exc)
        said = done.stderr.decode(errors="replace").strip()[:200]
        return "" if done.returncode == 0 else f"exit status {done.returncode}: {said}"


def _check(target: str, *, url: bool) -> None:
    if not url:
        if shutil.which(target) is None:
            raise BadTarget(f"`{target}` is no program that can be run, and no URL")
        return
    try:
        place = urllib3.util.parse_url(target)
    except urllib3.exceptions.LocationParseError as exc:
        raise BadTarget(f"`{target}` is no URL: {exc}") from exc
    if place.scheme not in ("http", "https") or not place.host:
        raise BadTarget(f"`{target}` is no URL of http or https")
