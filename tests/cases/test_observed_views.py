"""Observed preemptions whose scheduler's cache stood at no one state of the API server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from policy.audit.observed.deciding import Again, decide_again
from policy.audit.observed.views import View
from policy.cluster.snapshot import Snapshot
from policy.observing.model import Confidence, Evidence, Preemption, SeenVictim
from policy.store import NotFound, Unavailable
from policy.store.observed import ObservedSituation
from tests.support.builders import (
    NOW_MS,
    Builder,
    NodeBuilder,
    PodBuilder,
    a_node,
    a_pdb,
    a_pod,
    rule_set,
    snapshot,
)

PREEMPTOR = a_pod("vip").priority(100).cpu(2)


def low(name: str, *, minutes: int | None = 60, cpu: int = 2) -> PodBuilder:
    return a_pod(name).priority(1).cpu(cpu).started(minutes)


def node(name: str, *pods: PodBuilder, cpu: int = 2) -> NodeBuilder:
    return a_node(name).cpu(cpu).running(*pods)


def again(
    took: str,
    *victims: str,
    base: int,
    states: list[list[Builder]],
    wanted: Callable[[int], object] = int,
) -> Again:
    """The preemption by `vip`, decided again; the first state is revision 1.

    wanted: gets each revision that is looked at.
    """

    def at(revision: int) -> Snapshot:
        wanted(revision)
        if not 1 <= revision <= len(states):
            raise NotFound(f"no revision {revision}")
        return snapshot(*states[revision - 1])

    preemption = Preemption(
        preemptor="default/vip",
        preemptor_uid="default/vip",
        preemptor_kind="Pod",
        node=took,
        scheduler="default-scheduler",
        at_ms=NOW_MS,
        confidence=Confidence.CERTAIN,
        victims=tuple(
            SeenVictim(pod=f"default/{name}", uid="", evidence=(Evidence.EVENT,))
            for name in victims
        ),
        nominated=True,
    )
    situation = ObservedSituation(
        base_revision=base,
        exact=True,
        last_revision=len(states),
        preemptor=PREEMPTOR.pod,
        victims={},
    )
    found = decide_again(preemption, situation, rule_set("kube-1.36"), at)
    detail = found.verdict.detail
    if found.verdict.verdict == "lag":  # what is stored gives the same view again
        view = View.stored(int(detail["revision"]), detail)
        assert view.of(at).pod("default/vip") is not None
    return found


def said(found: Again) -> tuple[str, str]:
    return str(found.verdict.verdict), found.verdict.reason


def test_a_pod_that_was_bound_and_not_yet_seen_there() -> None:
    """The node looks free: the scheduler has just given it away."""
    waiting = a_pod("other").priority(100).cpu(2)
    full = node("full", low("victim"))
    states: list[list[Builder]] = [
        [full, node("free"), waiting, PREEMPTOR],
        [full, node("free", waiting.on("free")), PREEMPTOR.nominated_to("full")],
    ]
    assert said(again("full", "victim", base=1, states=states)) == (
        "lag",
        "same at revision 1, where the scheduler had placed default/other already",
    )


def test_budgets_that_were_known_later() -> None:
    """Each kind has a watch of its own."""
    early = low("early", minutes=60).labelled(app="early")
    late = low("late", minutes=1).labelled(app="late")
    nodes = [node("a", early), node("b", late), PREEMPTOR]
    spared = a_pdb("late").selecting(app="late")
    states: list[list[Builder]] = [
        [*nodes, spared.allowing(1)],
        [*nodes, spared.allowing(0)],
        [*nodes, spared.allowing(0)],
    ]
    assert said(again("a", "early", base=1, states=states[:1]))[0] == "other"
    # At its own time a later state has the victim; what differs is the budget alone.
    gone: list[list[Builder]] = [states[0], [node("b", late), PREEMPTOR, spared.allowing(0)]]
    assert said(again("a", "early", base=1, states=gone)) == (
        "lag",
        "same at revision 1, with the disruption budgets of revision 2",
    )


def test_a_start_that_was_not_yet_known() -> None:
    """A pod without a start time counts as one that starts just now: the youngest."""
    young = low("young", minutes=2)
    fresh = low("fresh", minutes=3)
    base: list[Builder] = [node("a", young), node("b", fresh), PREEMPTOR]
    before: list[Builder] = [node("a", young), node("b", fresh.started(None))]
    assert said(again("b", "fresh", base=3, states=[before, before, base])) == (
        "lag",
        "same at revision 3, before it knew that default/fresh had started",
    )


def test_only_states_around_it_are_looked_at() -> None:
    """However long its effects took: reading states holds up what is news."""
    states: list[list[Builder]] = [[node("n", low("a")), node("m"), PREEMPTOR]] * 400
    looked_at: set[int] = set()
    found = again("n", "a", base=200, states=states, wanted=looked_at.add)
    assert (said(found)[0], looked_at) == ("other", set(range(192, 217)))


@pytest.mark.parametrize("out", [2, 1])
def test_an_outage_is_no_answer(out: int) -> None:
    """Where the database cannot be read, nothing is said of the scheduler, and nothing is kept.

    out: the revision that cannot be read: that before its effects, or one nearby.
    """

    def wanted(revision: int) -> None:
        if revision == out:
            raise Unavailable("database `policy.db` stayed locked by another process")

    states: list[list[Builder]] = [[node("n", low("a")), node("m"), PREEMPTOR]] * 2
    with pytest.raises(Unavailable, match="stayed locked"):
        again("n", "a", base=2, states=states, wanted=wanted)


def test_a_preemptor_that_was_not_there() -> None:
    """Nothing can be decided for it, so nothing is said of the scheduler."""
    states: list[list[Builder]] = [[node("n", low("a"))], [node("n"), PREEMPTOR]]
    assert said(again("n", "a", base=1, states=states)) == (
        "unknown",
        "no pod `default/vip` in the cluster",
    )


@pytest.mark.parametrize(
    ("victims", "verdict"),
    [
        (("c",), "same"),
        (("a", "b"), "order"),  # more: another order of equal pods can need another number
        (("a", "b", "c"), "other"),  # in no order are they all needed
    ],
)
def test_equal_pods_have_no_order(victims: tuple[str, ...], verdict: str) -> None:
    pods = [low("a", cpu=1), low("b", cpu=1), low("c", cpu=2)]
    states: list[list[Builder]] = [[node("n", *pods, cpu=4), PREEMPTOR]]
    assert said(again("n", *victims, base=1, states=states))[0] == verdict
