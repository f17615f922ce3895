"""Many simulations: every rule set with every seed, by as many workers as there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from policy.parts import HERE, Workers, map_parts
from policy.rules.ruleset import RuleSet
from policy.simulation.options import Options
from policy.simulation.run import Result, simulate
from policy.simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class Always:
    """The same trace for every seed."""

    trace: Trace

    def __call__(self, seed: int) -> Trace:
        return self.trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulations:
    """Work on parts (rule set, seed)."""

    trace_of: Callable[[int], Trace]
    """The trace that belongs to a seed; picklable. A recorded one is the same for all."""
    rules: Sequence[RuleSet]
    options: Options

    @contextmanager
    def open(self) -> Iterator[Callable[[tuple[int, int]], Result]]:
        known: dict[int, Trace] = {}

        def do(part: tuple[int, int]) -> Result:
            number, seed = part
            if seed not in known:
                known.clear()  # one at a time: they are large
                known[seed] = self.trace_of(seed)
            return simulate(known[seed], self.rules[number], seed=seed, options=self.options)

        yield do


def simulations(
    trace_of: Callable[[int], Trace],
    rules: Sequence[RuleSet],
    *,
    seeds: int,
    options: Options,
    workers: Workers = HERE,
) -> Iterator[Result]:
    """Every rule set with the seeds 0 to `seeds` - 1; all rule sets of a seed come together."""
    work = Simulations(trace_of=trace_of, rules=rules, options=options)
    parts = [(number, seed) for seed in range(seeds) for number in range(len(rules))]
    yield from map_parts(work, parts, workers)
