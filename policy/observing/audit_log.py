"""Preemptions in the audit log of a kube-apiserver: what the scheduler's user asked it to do.

The log is JSON lines of `audit.k8s.io/v1`. A kube-scheduler deletes pods for no other reason than
preemption, so that each of its deletions has a victim. How much more there is depends on the
log's policy:

| level | what it adds |
| --- | --- |
| Metadata | victims and times; the preemptor is the pod whose status it patched just then |
| Request | its patches (nominated node, conditions) and its events, which name both |
| RequestResponse | the victim's node and uid |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from policy.cluster import times
from policy.observing.events import Claim, EventError, claim_of
from policy.observing.model import Confidence, Evidence, Preemption, SeenVictim

SCHEDULER_USER: Final = "system:kube-scheduler"
_TOGETHER_MS: Final = 10_000
_ONE_WAVE_MS: Final = 5_000


class AuditLogError(ValueError):
    """A line that is no entry of an audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deletion:
    pod: str
    uid: str
    node: str  #: "" where the log does not say it
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Patch:
    pod: str
    uid: str
    node: str  #: that it nominates the pod to; "" where the log does not say it
    at_ms: int


class AuditLog:
    """Takes the entries of a log in any order; `preemptions` gives what follows from them."""

    def __init__(self, *, users: Iterable[str] = (SCHEDULER_USER,)) -> None:
        """users: who the schedulers are to the API server."""
        self._users = frozenset(users)
        self._deletions: list[_Deletion] = []
        self._patches: list[_Patch] = []
        self._claims: dict[str, Claim] = {}
        self._names: dict[str, str] = {}  # of pods, by their uids
        self.entries = 0  #: of these users, that were used

    def take(self, entry: Mapping[str, Any]) -> None:
        """One entry. Raises AuditLogError for what is none."""
        if not str(entry.get("apiVersion", "")).startswith("audit.k8s.io/"):
            raise AuditLogError("no entry of an audit log: `apiVersion` is not audit.k8s.io")
        user = _mapping(entry, "user").get("username")
        code = _mapping(entry, "responseStatus").get("code", 200)
        if user not in self._users or entry.get("stage") not in ("ResponseComplete", None):
            return
        if not isinstance(code, int) or code >= 300:
            return
        try:
            self._use(entry)
        except (times.TimeError, EventError) as exc:
            raise AuditLogError(str(exc)) from exc

    def _use(self, entry: Mapping[str, Any]) -> None:
        ref, verb = _mapping(entry, "objectRef"), entry.get("verb")
        text = entry.get("requestReceivedTimestamp") or entry.get("stageTimestamp") or ""
        at_ms = times.parse(str(text))
        response, request = _mapping(entry, "responseObject"), _mapping(entry, "requestObject")
        pod = f"{ref.get('namespace') or 'default'}/{ref.get('name', '')}"
        uid = str(_mapping(response, "metadata").get("uid") or ref.get("uid") or "")
        if ref.get("resource") == "pods" and uid:
            self._names[uid] = pod  # bindings, too, have both
        if ref.get("resource") == "pods" and verb == "delete" and ref.get("name"):
            node = str(_mapping(response, "spec").get("nodeName") or "")
            self._deletions.append(_Deletion(pod=pod, uid=uid, node=node, at_ms=at_ms))
        elif ref.get("resource") == "pods" and ref.get("subresource") == "status":
            status = _mapping(request, "status")
            if _marks_victim(status):
                return
            node = str(status.get("nominatedNodeName") or "")
            self._patches.append(_Patch(pod=pod, uid=uid, node=node, at_ms=at_ms))
        elif ref.get("resource") == "events" and verb in ("create", "patch", "update"):
            meta = _mapping(response, "metadata") or _mapping(request, "metadata")
            claim = claim_of({**request, "metadata": meta})
            if claim is None:
                return
            self._claims[claim.event_uid] = claim
        else:
            return
        self.entries += 1

    @property
    def claims(self) -> list[Claim]:
        """What the scheduler's events say, with the name where they say the uid alone."""
        return [
            one
            if one.preemptor or not one.preemptor_uid
            else replace(one, preemptor=self._names.get(one.preemptor_uid, ""))
            for one in self._claims.values()
        ]

    def preemptions(self) -> list[Preemption]:
        """Those that no event names: from deletions and patches."""
        named = {claim.victim for claim in self._claims.values()}
        open_ = sorted(
            (one for one in self._deletions if one.pod not in named),
            key=lambda one: (one.at_ms, one.pod),
        )
        victims = {one.pod for one in self._deletions}
        waves: dict[str, list[list[_Deletion]]] = defaultdict(list)
        for one in open_:
            of_node = waves[one.node]
            if of_node and one.at_ms - of_node[-1][-1].at_ms <= _ONE_WAVE_MS:
                of_node[-1].append(one)
            else:
                of_node.append([one])
        return [
            self._preemption(node, wave, victims)
            for node, of_node in sorted(waves.items())
            for wave in of_node
        ]

    def _preemption(self, node: str, wave: list[_Deletion], victims: set[str]) -> Preemption:
        near: dict[str, _Patch] = {}
        for patch in self._patches:
            apart = abs(patch.at_ms - wave[0].at_ms)
            fits = not node or not patch.node or patch.node == node
            if apart <= _TOGETHER_MS and fits and patch.pod not in victims:
                known = near.get(patch.pod)
                near[patch.pod] = patch if known is None or patch.node else known
        nominated = [patch for patch in near.values() if patch.node]
        asking = nominated or list(near.values())
        single = asking[0] if len(asking) == 1 else None
        sure = single is not None and bool(single.node) and single.node == node
        return Preemption(
            preemptor=single.pod if single else "",
            preemptor_uid=single.uid if single else "",
            preemptor_kind="Pod",
            node=node or (single.node if single else ""),
            scheduler=SCHEDULER_USER,
            at_ms=min(one.at_ms for one in wave),
            confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
            victims=tuple(
                SeenVictim(pod=one.pod, uid=one.uid, evidence=(Evidence.AUDIT_LOG,))
                for one in sorted(wave, key=lambda one: one.pod)
            ),
        )


def _marks_victim(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions")
    return isinstance(conditions, list) and any(
        isinstance(one, Mapping) and one.get("type") == "DisruptionTarget" for one in conditions
    )


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = value.get(key)
    return part if isinstance(part, Mapping) else {}
