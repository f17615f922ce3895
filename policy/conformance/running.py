"""Recordings of a running kube-scheduler with its API server: first cycles, and score tables.

agree   The same outcome on the same node; the same newly deleted victims and cleared nominations;
        the same message of the condition PodScheduled. A score table: the same for every plugin,
        our node among those of the highest sum.
tie     Another node that every ranking criterion but the name takes for equal (for a pod that
        fits: of an equal sum), or other victims that are equal in priority and start. A score
        table with another size of an image that nodes report in several sizes.
differ  Everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from policy.cluster.objects import ContainerImage, Node
from policy.cluster.snapshot import Snapshot as AnySnapshot
from policy.conformance import scenario
from policy.conformance.compare import different
from policy.conformance.results import Agreement, RecordingError, ScenarioResult
from policy.conformance.scenario import LineHead
from policy.decision.messages import fit_error
from policy.decision.model import Candidate, Decision, NominationChange, Outcome
from policy.scoring.image_locality import images_of
from policy.typed import prepared

if TYPE_CHECKING:
    from policy.conformance.run import RecordingLine
    from policy.face import Snapshot
    from policy.rules import RuleSet

SCORERS: Final[Mapping[str, str]] = {
    "taints": "TaintToleration",
    "node-affinity": "NodeAffinity",
    "topology-spread": "PodTopologySpread",
    "pod-affinity": "InterPodAffinity",
    "least-allocated": "NodeResourcesFit",
    "most-allocated": "NodeResourcesFit",
    "requested-to-capacity-ratio": "NodeResourcesFit",
    "balanced-allocation": "NodeResourcesBalancedAllocation",
    "image-locality": "ImageLocality",
}
"""kube-scheduler's names of the scorers of rule files."""


class RecordedCycle(msgspec.Struct, frozen=True, rename="camel"):
    """What the scheduler did in the pod's first cycle."""

    node: str | None = None  #: bound to
    victims: list[str] = []  #: newly deleted
    nominated: str | None = None  #: status.nominatedNodeName after the cycle
    cleared_nominations: list[str] = []
    message: str | None = None  #: of PodScheduled; None where it did not fail
    preempted: bool | None = None  #: of a pod that was nominated already: did this cycle preempt?
    scores: dict[str, dict[str, int]] | None = None  #: node -> plugin -> weighted score
    totals: dict[str, int] | None = None


class RunningRecord(msgspec.Struct, frozen=True):
    """One line."""

    id: str
    objects: list[dict[str, Any]]
    pending: str  #: namespace/name
    now: float  #: seconds since 1970
    expect: RecordedCycle


_DECODER: Final = msgspec.json.Decoder(prepared(RunningRecord))


class Running:
    """The first cycle of a pod, or a placement with its scores, per line."""

    def knows(self, head: LineHead) -> bool:
        return head.pending is not None and bool(head.objects) and bool(head.expect)

    def judge(self, task: RecordingLine, rules: RuleSet | None, *, strict: bool) -> ScenarioResult:
        from policy.face import Snapshot

        where = f"{task.source}:{task.line}"
        if rules is None:
            raise RecordingError(f"{where}: a scheduling cycle, which batch rules do not decide")
        record = _DECODER.decode(task.text)
        # As long as the clock's fractions are not those of start times, they decide nothing.
        now = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=round(record.now * 1000))
        snapshot = Snapshot.from_manifests(record.objects, now=now, admission=False)
        judged = _Cycle(record, snapshot, rules)
        table = record.expect.scores
        lines = tuple(judged.differences() if table is None else judged.scores(table))
        agreed = Agreement.TIE if judged.tied else Agreement.AGREE
        return ScenarioResult(
            id=record.id,
            family=scenario.head(task.text).of_family,
            source=task.source,
            verdict=Agreement.DIFFER if lines else agreed,
            differences=lines or tuple(judged.tied),
        )


class _Cycle:
    def __init__(self, record: RunningRecord, snapshot: Snapshot, rules: RuleSet) -> None:
        from policy.preemption.decide import decide

        self.expect = record.expect
        self.pod = record.pending
        self.snapshot = snapshot
        self.rules = rules
        self.tied: list[str] = []
        self.decision: Decision = decide(snapshot, rules, record.pending)

    # --- cycles ----------------------------------------------------------------------------------

    def differences(self) -> Iterator[str]:
        ours, recorded = self._outcome(), self._recorded_outcome()
        if ours != recorded:
            yield f"outcome: {ours} ({self.decision.trace.message}), recorded {recorded}"
            return
        decision, expect = self.decision, self.expect
        if decision.outcome is Outcome.BIND:
            yield from self._bound(expect.node or "")
            return
        if decision.outcome is Outcome.PREEMPT:
            yield from self._preempted()
        elif self._nominated_after() != (expect.nominated or ""):
            yield f"nominated: {self._nominated_after() or 'no node'}, recorded " + (
                expect.nominated or "no node"
            )
        nodes, claims = len(self.snapshot.nodes), self.rules.effects.claims_message
        text = fit_error(decision, nodes=nodes, claims=claims)
        if expect.message is not None and text != expect.message:
            yield f"message: `{text}`, recorded `{expect.message}`"

    def _outcome(self) -> str:
        outcome = self.decision.outcome
        return outcome.value if outcome in {Outcome.BIND, Outcome.PREEMPT} else "pending"

    def _recorded_outcome(self) -> str:
        expect = self.expect
        if expect.node is not None:
            return Outcome.BIND.value
        preempted = expect.preempted
        if preempted is None:
            preempted = expect.nominated is not None
        return Outcome.PREEMPT.value if preempted else "pending"

    def _nominated_after(self) -> str:
        pod = self.snapshot.pod(self.pod)
        assert pod is not None
        change = self.decision.effects.nomination
        return "" if change is NominationChange.CLEAR else pod.status.nominated_node_name

    def _bound(self, recorded: str) -> Iterator[str]:
        if self.decision.node == recorded:
            return
        from policy.preemption.scores import score_table

        totals = {
            node: sum(scores.values())
            for node, scores in score_table(self.snapshot, self.rules, self.pod).items()
        }
        text = f"bound to {self.decision.node}, recorded {recorded}"
        if totals.get(recorded) == totals[self.decision.node or ""]:
            self.tied.append(text)
        else:
            yield text

    def _preempted(self) -> Iterator[str]:
        recorded = self.expect.nominated or ""
        candidates = {c.node: c for c in self.decision.candidates}
        ours = candidates[self.decision.node or ""]
        if recorded not in candidates:
            yield f"node: {ours.node}, recorded {recorded}, which is no candidate"
            return
        if recorded != ours.node:
            text = f"node: {ours.node}, recorded {recorded}"
            if not self._equal(ours, candidates[recorded]):
                yield text
                return
            self.tied.append(text)
        yield from self._victims(candidates[recorded])
        if recorded == ours.node:
            cleared = self.decision.effects.clear_nominations
            yield from different("cleared nominations", cleared, self.expect.cleared_nominations)

    def _equal(self, one: Candidate, other: Candidate) -> bool:
        """Whether every criterion but the last one, a pick, gives both the same."""
        judged = [c.id for c in self.rules.ranking if c.expression is not None]
        return all(one.values.get(name) == other.values.get(name) for name in judged)

    def _victims(self, candidate: Candidate) -> Iterator[str]:
        ours, recorded = set(self._newly_deleted(candidate.victims)), set(self.expect.victims)
        if ours == recorded:
            return
        line = next(different("victims", ours, recorded))
        if self._alike(ours - recorded) == self._alike(recorded - ours):
            self.tied.append(line)
        else:
            yield line

    def _newly_deleted(self, victims: Iterable[str]) -> Iterator[str]:
        again = self.rules.effects.delete_terminating_victims
        for key in victims:
            pod = self.snapshot.pod(key)
            if again or (pod is not None and not pod.metadata.deletion_timestamp):
                yield key

    def _alike(self, pods: Iterable[str]) -> Counter[tuple[int, str | None]]:
        found = [self.snapshot.pod(key) for key in pods]
        return Counter((p.spec.priority or 0, p.status.start_time) for p in found if p is not None)

    # --- scores ----------------------------------------------------------------------------------

    def scores(self, recorded: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
        lines, node = self._table(self.snapshot, recorded), self.decision.node or ""
        if lines:
            found = self._with_other_sizes(recorded)
            if found is None:
                yield from lines
                return
            node = found
            self.tied.append("an image has several sizes, of which the scheduler met another first")
        # Chance decides among the best, and the recording has one of them.
        totals = {name: sum(scores.values()) for name, scores in recorded.items()}
        if totals.get(node) != max(totals.values()):
            best = max(totals, key=lambda n: (totals[n], n))
            yield f"node: {node} with a sum of {totals.get(node)}, {best} has {totals[best]}"

    def _table(
        self, snapshot: AnySnapshot, recorded: Mapping[str, Mapping[str, int]]
    ) -> Sequence[str]:
        """Where our table is not the recorded one."""
        from policy.preemption.scores import score_table

        found = score_table(snapshot, self.rules, self.pod)
        if found.keys() != recorded.keys():
            return list(different("nodes that fit", found, recorded))
        ours = {
            node: {SCORERS.get(name, name): value for name, value in scores.items()}
            for node, scores in found.items()
        }
        plugins = {name for scores in (*ours.values(), *recorded.values()) for name in scores}
        # A plugin without anything to say may be left out or give every node nothing.
        return [
            f"{plugin} {node}: {_shown(mine)}, recorded {_shown(theirs)}"
            for plugin in sorted(plugins)
            for node in sorted(recorded)
            for mine, theirs in [(ours[node].get(plugin), recorded[node].get(plugin))]
            if (mine or 0) != (theirs or 0)
        ]

    def _with_other_sizes(self, recorded: Mapping[str, Mapping[str, int]]) -> str | None:
        """Our node where other sizes of the pod's images give the recorded table.

        Nodes may report one image with different sizes; the scheduler keeps that of the node that
        it met first, which depends on the order of past events.
        """
        from policy.preemption.decide import decide

        for sizes in islice(_size_choices(self.snapshot, self.pod), _CHOICES):
            changed = [
                ("Node", node.metadata.name, _resized(node, sizes))
                for node in self.snapshot.nodes.nodes
            ]
            other = self.snapshot.apply(changed)
            if not self._table(other, recorded):
                return decide(other, self.rules, self.pod).node
        return None


_CHOICES: Final = 256
"""Sizes of images that are tried."""


def _size_choices(snapshot: Snapshot, key: str) -> Iterator[Mapping[str, int]]:
    """Every choice of one size for each of the pod's images that has several."""
    pod = snapshot.pod(key)
    wanted = set(images_of(pod)) if pod is not None else set()
    sizes: dict[str, set[int]] = {name: set() for name in sorted(wanted)}
    for node in snapshot.nodes.nodes:
        for image in node.status.images or ():
            for name in wanted.intersection(image.names or ()):
                sizes[name].add(image.size_bytes)
    several = {name: sorted(found) for name, found in sizes.items() if len(found) > 1}
    if several:
        for choice in product(*several.values()):
            yield dict(zip(several, choice, strict=True))


def _resized(node: Node, sizes: Mapping[str, int]) -> Node:
    """The node with these images in these sizes, each name on its own."""
    images = [
        ContainerImage(names=[name], size_bytes=sizes.get(name, image.size_bytes))
        for image in node.status.images or ()
        for name in image.names or ()
    ]
    return replace(node, status=replace(node.status, images=images))


def _shown(value: int | None) -> str:
    return "none" if value is None else str(value)
