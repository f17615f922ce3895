"""A pod that cannot be decided is a decision with outcome `error`; it does not stop the others."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from policy.audit.inputs import ReplayVerdict
from policy.audit.replay import replay_all
from policy.cli.app import cli
from policy.cluster import times
from policy.decision.model import NO_EFFECTS, Outcome
from policy.preemption.decide import decide
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.scheduling.effects import changes_of
from policy.store import Store
from policy.store.journal import StoreJournal
from tests.support.builders import NOW_MS, PodBuilder, a_node, a_pod, objects, rule_set, snapshot

RULES = rule_set("kube-1.35")
FOREVER = 252_000_000_000
MESSAGE = (
    "cannot be decided: pod `default/low` would be gone after the year 9999:"
    f" it has {FOREVER} s of grace"
)


def with_grace(pod: PodBuilder, seconds: int) -> PodBuilder:
    spec = replace(pod.pod.spec, termination_grace_period_seconds=seconds)
    return PodBuilder(replace(pod.pod, spec=spec))


CLUSTER = (
    a_node("n1").cpu(2).running(with_grace(a_pod("low").priority(1).cpu(2), FOREVER)),
    a_pod("high").priority(9).cpu(2),
    a_pod("small").priority(8),
)


def test_an_eviction_that_no_time_can_express_is_an_error() -> None:
    """The victim would be gone after the year 9999: the decision says so and changes nothing."""
    state = snapshot(*CLUSTER)
    decision = decide(state, RULES, "default/high")
    assert (decision.outcome, decision.trace.message, decision.effects, decision.node) == (
        Outcome.ERROR,
        MESSAGE,
        NO_EFFECTS,
        None,
    )
    assert changes_of(state, decision) == ()


def test_the_end_of_time_is_an_error_too() -> None:
    """At the last second of the year 9999 no grace period can be granted any more."""
    state = snapshot(
        a_node("n1").cpu(2).running(a_pod("low").priority(1).cpu(2)),
        a_pod("high").priority(9).cpu(2),
    ).at(times.parse("9999-12-31T23:59:59Z"))
    decision = decide(state, RULES, "default/high")
    assert (decision.outcome, decision.trace.message) == (
        Outcome.ERROR,
        "cannot be decided: pod `default/low` would be gone after the year 9999: it has 30 s of"
        " grace",
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OverflowError("int too large"), "a number is too large"),
        (KeyError("x"), "internal error (KeyError)"),
    ],
)
def test_any_failure_is_an_error_of_the_pod(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    """Whatever the engine cannot do with a pod is the outcome of that pod."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("policy.preemption.context.allowed_victims", fail)
    decision = decide(snapshot(*CLUSTER), RULES, "default/high")
    assert (decision.outcome, decision.trace.message) == (
        Outcome.ERROR,
        f"cannot be decided: {said}",
    )


def test_a_run_goes_on_and_the_error_replays(database_url: str) -> None:
    """The undecidable pod has its row, the next one is placed, and both are made again."""
    with Store.open(database_url) as store:
        store.record.import_objects("default", objects(*CLUSTER), at_ms=NOW_MS, source="test")
        journal = StoreJournal(store, "default", actor="test", clock=lambda: NOW_MS)
        scheduler = Scheduler(journal, RuleSet.load("kube-1.35"), clock=lambda: NOW_MS, seed=0)
        steps = list(scheduler.run())
        rows = store.read.decisions()[::-1]
        replayed = list(replay_all(store, [row.id for row in rows]))
    assert [(row.preemptor, row.outcome, row.message, row.revision) for row in rows][:1] == [
        ("default/high", "error", MESSAGE, None)
    ]
    assert [step.decision.outcome for step in steps] == [Outcome.ERROR, Outcome.BIND]
    assert [result.verdict for result in replayed] == [ReplayVerdict.EQUAL] * 2


def test_the_exit_status_says_that_there_were_errors(database_url: str) -> None:
    """`run` ends with 3 where a decision ended in an error, though all pods were decided."""
    with Store.open(database_url) as store:
        store.record.import_objects("default", objects(*CLUSTER), at_ms=NOW_MS, source="test")
    ran = CliRunner().invoke(
        cli, ["run", "--db", database_url, "--output", "jsonl"], standalone_mode=False
    )
    assert (ran.return_value, len(ran.stdout.splitlines())) == (3, 2)
