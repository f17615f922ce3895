"""Recorded cycles of several versions on one cluster: `expect` by version.

A rule set is compared with the versions that it stands for (`metadata.versions`). Where
`expectAsync` tells what the same version does while deletions run in the background, that is
compared, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from policy.conformance import compare
from policy.conformance.results import Agreement, RecordingError, ScenarioResult
from policy.conformance.scenario import Expect, LineHead, RecordedPostFilter, Scenario
from policy.rules.versions import VersionRange, lowest, parse_version
from policy.typed import prepared

if TYPE_CHECKING:
    from policy.conformance.run import RecordingLine
    from policy.decision.model import Decision
    from policy.rules import RuleSet

_BY_VERSION: Final = re.compile(rb'\s*\{\s*"\d+\.\d+\.\d+"')


class RecordedEffects(msgspec.Struct, frozen=True, rename="camel"):
    """What followed a cycle whose deletions ran in the background."""

    post_filter: RecordedPostFilter | None = None
    cleared_nominations: list[str] | None = None
    deleted: list[str] | None = None
    disruption_target: list[str] | None = None


class RecordedVariants(msgspec.Struct, frozen=True, rename="camel"):
    """One cluster, and what each version did."""

    id: str
    family: str
    cluster: dict[str, Any]
    pod: str
    expect: dict[str, Expect]
    expect_async: dict[str, RecordedEffects] = {}


class Variants:
    """One scheduling cycle of several versions of kube-scheduler per line."""

    def knows(self, head: LineHead) -> bool:
        return head.pod is not None and _BY_VERSION.match(bytes(head.expect)) is not None

    def judge(self, task: RecordingLine, rules: RuleSet | None, *, strict: bool) -> ScenarioResult:
        where = f"{task.source}:{task.line}"
        if rules is None:
            raise RecordingError(f"{where}: a scheduling cycle, which batch rules do not decide")
        record = _DECODER.decode(task.text)
        versions = _versions(record.expect, rules)
        if not versions:
            raise RecordingError(
                f"{where}: nothing is recorded for a version of rule set `{rules.name}`",
                help=f"recorded are {', '.join(record.expect)}; "
                "`metadata.versions` of a rule set says for which it stands",
            )
        results = [
            result
            for version in versions
            for result in _results(record, version, rules, source=task.source, strict=strict)
        ]
        worst = max((r.verdict for r in results), key=list(Agreement).index)
        return ScenarioResult(
            id=record.id,
            family=record.family,
            source=task.source,
            verdict=worst,
            differences=tuple(line for r in results for line in r.differences),
        )


_DECODER: Final = msgspec.json.Decoder(prepared(RecordedVariants))


def _versions(recorded: Mapping[str, Expect], rules: RuleSet) -> list[str]:
    if not rules.versions:
        return []
    stands_for = VersionRange.parse(rules.versions)
    return [v for v in recorded if lowest(parse_version(v)) in stands_for]


def _results(
    record: RecordedVariants, version: str, rules: RuleSet, *, source: str, strict: bool
) -> Iterator[ScenarioResult]:
    scenario = Scenario(
        id=record.id,
        family=record.family,
        cluster=record.cluster,
        pod=record.pod,
        expect=record.expect[version],
    )
    yield compare.compare(scenario, rules, source=source, strict=strict)
    effects = record.expect_async.get(version)
    if effects is None:
        return
    differences = tuple(_effects(effects, compare.decided(scenario, rules)))
    yield ScenarioResult(
        id=record.id,
        family=record.family,
        source=source,
        verdict=Agreement.DIFFER if differences else Agreement.AGREE,
        differences=tuple(f"in the background: {line}" for line in differences),
    )


def _effects(recorded: RecordedEffects, decision: Decision) -> Iterator[str]:
    """Differences of nomination, clearings, deletions and conditions."""
    effects = decision.effects
    nominated = recorded.post_filter.nominated_node if recorded.post_filter else None
    if (decision.node if effects.nomination.value == "set" else None) != (nominated or None):
        yield f"nominated to {decision.node or 'none'}, recorded {nominated or 'none'}"
    for what, ours, theirs in (
        ("cleared nominations", effects.clear_nominations, recorded.cleared_nominations),
        ("deleted", effects.evict, recorded.deleted),
        ("disruption target", effects.mark_disrupted, recorded.disruption_target),
    ):
        yield from compare.different(what, ours, theirs or ())
