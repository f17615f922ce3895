"""What is allowed in batch rules, but hardly meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from policy.batch import functions
from policy.batch.rules import BatchRules
from policy.batch.run import open_kube_batch
from policy.batch.semantics import VOCABULARIES, Semantics
from policy.batch.volcano.framework import functions as volcano_functions
from policy.batch.volcano.run import open_session
from policy.cluster.snapshot import Snapshot
from policy.rules.lint import LintWarning


class BatchFinding(StrEnum):
    """Kinds of warnings; the values are stable."""

    EMPTY_TIER = "empty-tier"
    LISTED_TWICE = "listed-twice"  # the later use of a plugin replaces the earlier one
    FLAG_WITHOUT_EFFECT = "flag-without-effect"  # the plugin has no function that it switches off
    NOT_CONSULTED = "not-consulted"  # an earlier tier decides alone
    IDLE_ACTION = "idle-action"  # no plugin has the functions that the action needs
    IDLE_PLUGIN = "idle-plugin"  # no action asks for what the plugin decides
    NO_GANG = "no-gang"  # groups are started pod by pod
    NO_PREDICATE = "no-predicate"  # every node counts as fit for every pod
    NO_DIVISION = "no-division"  # queues take what they can get
    TWO_DIVISIONS = "two-divisions"  # two plugins divide the cluster, and both have to agree
    UNTESTED = "untested"  # no case beside the rules shows what an action does
    NOT_MODELLED = "not-modelled"  # asked for by the rules, and not done by sessions here


DIVIDING: Final = ("proportion", "capacity")
"""Plugins that divide the cluster among queues."""

_VICTIMS: Final[Mapping[str, str]] = {"preempt": "preemptable", "reclaim": "reclaimable"}
"""Action -> the function without which it evicts no pod."""


def lint(rules: BatchRules, source: str) -> tuple[LintWarning, ...]:
    """All warnings about batch rules. source: where they come from, as messages name it."""
    return tuple(_Linter(rules, source).run())


class _Linter:
    def __init__(self, rules: BatchRules, source: str) -> None:
        self._rules = rules
        self._source = source
        self._volcano = rules.semantics == Semantics.VOLCANO
        # Plugins say what they decide by what they register; a session without objects shows it.
        nothing = Snapshot.from_objects([], now_ms=0)
        if self._volcano:
            self._plugins_with = open_session(nothing, rules)[0].dispatch.plugins_with
            self._flags: Mapping[str, str] = volcano_functions.FLAGS
        else:
            self._plugins_with = open_kube_batch(nothing, rules)[0].plugins_with
            self._flags = functions.FLAGS

    def _found(self, finding: BatchFinding, of: str, message: str, help: str) -> LintWarning:
        return LintWarning(finding=finding, place=self._source, rule=of, message=message, help=help)

    def _enabled(self, kind: str) -> list[tuple[int, str]]:
        """Tier and name of the plugins whose function of the kind takes part."""
        registered, flag = self._plugins_with(kind), self._flags.get(kind)
        return [
            (number, use.name)
            for number, tier in enumerate(self._rules.tiers)
            for use in tier
            if use.name in registered and (flag is None or use.enabled(flag))
        ]

    def run(self) -> Iterator[LintWarning]:
        yield from self._tiers()
        yield from self._uses()
        yield from self._actions()
        yield from self._missing()
        for what in self._rules.unmodelled:
            yield self._found(
                BatchFinding.NOT_MODELLED,
                what,
                f"`{what}` is not modelled",
                "expect other results than Volcano's where it matters",
            )

    def _tiers(self) -> Iterator[LintWarning]:
        for number, tier in enumerate(self._rules.tiers):
            if not tier:
                message = f"tier {number + 1} has no plugins"
                yield self._found(BatchFinding.EMPTY_TIER, "", message, "leave it out")
        counts = Counter(use.name for tier in self._rules.tiers for use in tier)
        for name, number in counts.items():
            if number > 1:
                message = f"plugin `{name}` is listed {number} times"
                advice = "the arguments of the last one count for all of them: keep one"
                yield self._found(BatchFinding.LISTED_TWICE, name, message, advice)

    def _uses(self) -> Iterator[LintWarning]:
        off = VOCABULARIES[Semantics(self._rules.semantics)].off
        for tier in self._rules.tiers:
            for use in tier:
                for flag in sorted(use.disabled - off):
                    kinds = [kind for kind, of in self._flags.items() if of == flag]
                    if not any(use.name in self._plugins_with(kind) for kind in kinds):
                        message = f"`{flag}: false` switches nothing off: `{use.name}` has no part"
                        advice = "leave the flag out"
                        finding = BatchFinding.FLAG_WITHOUT_EFFECT
                        yield self._found(finding, use.name, f"{message} in it", advice)

    def _actions(self) -> Iterator[LintWarning]:
        actions = self._rules.actions
        for action, kind in _VICTIMS.items():
            if action not in actions:
                continue
            asked = self._enabled(kind)
            if not asked:
                message = f"`{action}` evicts no pod: no plugin says who may go"
                advice = "add `gang`, or another plugin that judges victims"
                yield self._found(BatchFinding.IDLE_ACTION, action, message, advice)
            elif not self._volcano:
                yield from self._behind(action, asked)
            if self._volcano and not self._enabled("job_starving"):
                message = f"`{action}` does nothing: no plugin says which jobs starve"
                advice = "add `gang` or `priority`"
                yield self._found(BatchFinding.IDLE_ACTION, action, message, advice)
        if not self._volcano:
            return
        if "shuffle" in actions and not self._enabled("victims"):
            message = "`shuffle` evicts no pod: no plugin names any"
            yield self._found(BatchFinding.IDLE_ACTION, "shuffle", message, "add `tdm` or `pdb`")
        if "enqueue" not in actions:
            for name in ("overcommit", "resourcequota"):
                if name in self._plugins_with("job_enqueueable"):
                    message = f"`{name}` has no effect: it is heard by `enqueue` alone"
                    advice = "add `enqueue` to the actions, or leave the plugin out"
                    yield self._found(BatchFinding.IDLE_PLUGIN, name, message, advice)

    def _behind(self, action: str, asked: list[tuple[int, str]]) -> Iterator[LintWarning]:
        """Functions in tiers behind the first: kube-batch asks one tier about victims."""
        first = asked[0][0]
        for tier, name in asked:
            if tier != first:
                yield self._found(
                    BatchFinding.NOT_CONSULTED,
                    name,
                    f"`{name}` has no say about victims of `{action}`: tier {first + 1} decides"
                    " alone",
                    f"put it into tier {first + 1}, or leave it where only its orders count",
                )

    def _missing(self) -> Iterator[LintWarning]:
        if not self._enabled("job_ready"):
            message = "no plugin holds groups together: they are started pod by pod"
            yield self._found(BatchFinding.NO_GANG, "", message, "add `gang`")
        if not self._enabled("predicate"):
            message = "no plugin looks at selectors, taints and ports: every node fits every pod"
            yield self._found(BatchFinding.NO_PREDICATE, "", message, "add `predicates`")
        used = {use.name for tier in self._rules.tiers for use in tier}
        dividing = [name for name in DIVIDING if name in used]
        if not dividing:
            message = "no plugin divides the cluster: queues take what they can get"
            known = DIVIDING if self._volcano else DIVIDING[:1]
            advice = "add " + " or ".join(f"`{name}`" for name in known)
            yield self._found(BatchFinding.NO_DIVISION, "", message, advice)
        elif len(dividing) > 1:
            message = "`proportion` and `capacity` both divide the cluster, and both have to agree"
            yield self._found(BatchFinding.TWO_DIVISIONS, "", message, "keep one of them")
