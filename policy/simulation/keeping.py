"""Simulations in the record: a row for each, and its decisions where they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from policy.cluster import canonical
from policy.rules.ruleset import RuleSet
from policy.simulation.options import Options
from policy.simulation.run import Result, objects_at_start, require_possible, simulate
from policy.simulation.simulator import SOURCE
from policy.simulation.trace import Trace, TraceError
from policy.store import Origin, Store
from policy.store.journal import StoreJournal
from policy.store.record.simulating import NewSimulation
from policy.typed import prepared


def document(result: Result) -> dict[str, Any]:
    """A result as plain data. Times in milliseconds where a name ends in `_ms`."""
    told = asdict(result)
    told["options"] = dict(told["options"])
    told["by_priority"] = {str(p): f for p, f in told["by_priority"].items()}
    told["use_by_priority"] = {str(p): u for p, u in told["use_by_priority"].items()}
    told["outcomes"] = {str(o): n for o, n in told["outcomes"].items()}
    return told


def result_of(options: str, result: str) -> Result:
    """A recorded simulation again, from the two documents of its row."""
    told = {**msgspec.json.decode(result), "options": msgspec.json.decode(options)}
    # Means were written as texts of their digits, priorities as keys.
    return msgspec.convert(told, prepared(Result), strict=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A recorded simulation."""

    number: int  #: of its row
    result: Mapping[str, Any]  #: as it is recorded


def keep(
    store: Store,
    into: str,
    result: Result,
    rules: RuleSet,
    *,
    at_ms: int,
    actor: str,
    kept_in: str = "",
    tuning: Mapping[str, Any] | None = None,
) -> Kept:
    """Record what a simulation came to.

    into: name of the cluster under which it is kept. kept_in: that of the one that holds its
    decisions. tuning: the trial of a study that it is, kept with its options.
    """
    told = _exact(document(result))
    row = NewSimulation(
        digest=canonical.digest(told),
        trace=result.trace,
        trace_digest=result.trace_digest,
        seed=result.seed,
        start_ms=result.start_ms,
        end_ms=result.end_ms,
        engine_version=result.engine_version,
        kept_in=kept_in,
        options=told.pop("options") | ({} if tuning is None else {"tuning": tuning}),
        result=told,
    )
    number = store.record.simulation(into, row, rules=rules, at_ms=at_ms, actor=actor)
    return Kept(number=number, result=told)


def simulate_and_keep(
    store: Store,
    cluster: str,
    trace: Trace,
    rules: RuleSet,
    *,
    seed: int,
    options: Options,
    actor: str,
    clock: Callable[[], int],
) -> Result:
    """`simulate`, with every decision and change recorded in a cluster of its own.

    clock: milliseconds since 1970 UTC, at which it is recorded. Raises TraceError where the cluster
    exists, and for what `simulate` refuses.
    """
    require_possible(trace, rules, options)
    if cluster in {known.name for known in store.state.clusters()}:
        raise TraceError(
            f"there is a cluster `{cluster}` already",
            help="give another name with `--keep`; a simulation begins with an empty record",
        )
    store.record.import_objects(
        cluster,
        objects_at_start(trace),
        at_ms=clock(),
        of_ms=trace.start_ms,  # as all that follows, so that revisions go forward in time
        source=SOURCE,
        actor=actor,
    )
    journal = StoreJournal(store, cluster, actor=actor, clock=clock, origin=Origin.SIMULATED)
    return simulate(trace, rules, seed=seed, options=options, journal=journal)


def _exact(value: Any) -> Any:
    """Plain data without floating-point numbers: means become texts of their digits."""
    match value:
        case float():
            return f"{value:.6f}"
        case dict():
            return {key: _exact(item) for key, item in value.items()}
        case list() | tuple():
            return [_exact(item) for item in value]
    return value
