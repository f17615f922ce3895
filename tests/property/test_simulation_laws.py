"""Laws of simulations: of pods, of nodes, of work and of time.

Traces are small and contended: pods of three sizes and priorities on few nodes, with a budget in
half of them. Pods request one resource, so that a node's room is a number.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from policy.simulation.options import Options, Restart
from policy.simulation.run import Result, simulate
from policy.simulation.trace import Trace, TracePod
from tests.support.builders import NOW_MS, NodeBuilder, a_node, a_pdb, a_pod, rule_set

SOME = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
RULES = ("kube-1.36", "kube-1.20", "kube-1.14")
PATIENT = """{"eligibility": {"insert": [{"at": "start", "rule": {
    "id": "patience", "when": "preemptor.waitingSeconds < 20", "verdict": "deny",
    "reason": "it waits a while first", "why": "most room comes by itself"}}]}}"""
"""What a pod may do depends on the instant."""


@st.composite
def traces(draw: st.DrawFn, *, priorities: int = 3, sizes: int = 3, cpus: int = 4) -> Trace:
    nodes = [a_node(f"n{i}").cpu(cpus).node for i in range(draw(st.integers(1, 3)))]
    budget = a_pdb("b").selecting(app="a").allowing(draw(st.integers(0, 2))).budget
    tasks = []
    for i in range(draw(st.integers(1, 14))):
        made = a_pod(f"p{i}").priority(draw(st.integers(0, priorities - 1)))
        made = made.cpu(draw(st.integers(1, sizes))).labelled(app="a" if i % 2 else "b")
        grace = draw(st.sampled_from([0, 3, 30]))
        spec = with_fields(made.pod.spec, termination_grace_period_seconds=grace)
        tasks.append(
            TracePod(
                pod=with_fields(made.pod, spec=spec),
                arrives_ms=NOW_MS + draw(st.integers(0, 60_000)),
                work_ms=draw(st.none() | st.integers(0, 60_000)),
                withdrawn_ms=draw(st.none() | st.just(NOW_MS + 50_000)),
            )
        )
    return Trace(
        name="drawn",
        start_ms=NOW_MS,
        end_ms=NOW_MS + 200_000,
        objects=[*nodes, *([budget] if draw(st.booleans()) else [])],
        tasks=sorted(tasks, key=lambda t: t.arrives_ms),
    )


OPTIONS = st.builds(
    Options,
    restart=st.sampled_from(Restart),
    return_ms=st.just(0),
    bare_return_ms=st.sampled_from([0, 7_000, None]),
    cycle_ms=st.sampled_from([1, 5, 700]),
)


def run(trace: Trace, options: Options, rules: str = "kube-1.36", *, every: bool = False) -> Result:
    named = rule_set("kube-1.36", PATIENT) if rules == PATIENT else rule_set(rules)
    return simulate(trace, named, options=options, seed=1, every_cycle=every)


@SOME
@given(trace=traces(), options=OPTIONS, rules=st.sampled_from((*RULES, PATIENT)))
def test_cycles_that_are_certain_to_fail_change_nothing(
    trace: Trace, options: Options, rules: str
) -> None:
    """Made or passed over, they lead to the same events, cycles and figures."""
    every, passed = (run(trace, options, rules, every=e) for e in (True, False))
    assert replace(every, outcomes={}) == replace(passed, outcomes={})


@SOME
@given(trace=traces(), options=OPTIONS)
def test_the_same_inputs_give_the_same_result(trace: Trace, options: Options) -> None:
    """Bit for bit, with the digest of everything that happened."""
    assert asdict(run(trace, options)) == asdict(run(trace, options))


@SOME
@given(trace=traces(), options=OPTIONS)
def test_pods_nodes_and_time(trace: Trace, options: Options) -> None:
    """No pod runs twice at once, no node is above its allocatable, time never runs backwards."""
    cpu = {t.key: int(t.pod.spec.containers[0].resources.requests["cpu"]) for t in trace.tasks}  # type: ignore
    on: dict[str, str] = {}
    used: dict[str, int] = defaultdict(int)
    last = NOW_MS

    def follow(at_ms: int, what: str) -> None:
        nonlocal last
        assert at_ms >= last
        last = at_ms
        key, verb, *rest = what.split()
        if verb == "started":
            assert key not in on
            on[key] = rest[0]
            used[rest[0]] += cpu[key]
            assert used[rest[0]] <= 4
        elif verb in {"done", "gone", "withdrawn"} and key in on:
            used[on.pop(key)] -= cpu[key]

    simulate(trace, rule_set("kube-1.36"), options=options, seed=1, on_event=follow)


@SOME
@given(trace=traces(), options=OPTIONS)
def test_work_is_conserved(trace: Trace, options: Options) -> None:
    """All running is work done or work lost; what is done is what there was to do."""
    running: dict[str, int] = {}
    ran: dict[str, int] = defaultdict(int)
    done: set[str] = set()

    def follow(at_ms: int, what: str) -> None:
        key, verb, *_ = what.split()
        if verb == "started":
            running[key] = at_ms
        elif verb in {"done", "evicted", "withdrawn"} and key in running:
            ran[key] += at_ms - running.pop(key)
            if verb == "done":
                done.add(key)

    result = simulate(trace, rule_set("kube-1.36"), options=options, seed=1, on_event=follow)
    for key, since in running.items():
        ran[key] += result.end_ms - since
    found = result.everyone
    assert found.run_ms == found.done_ms + found.lost_ms == sum(ran.values())
    work = {t.key: t.work_ms for t in trace.tasks}
    if options.restart is Restart.REMAINING:
        assert found.lost_ms == 0
        assert all(ran[key] == work[key] for key in done)
    assert all(ran[key] >= (work[key] or 0) for key in done)


@SOME
@given(trace=traces(cpus=100), options=OPTIONS)
def test_without_contention_nothing_is_evicted(trace: Trace, options: Options) -> None:
    """Where every node has room for all pods at once, none waits for more than the queue."""
    found = run(trace, options).everyone
    assert (found.evictions, found.lost_ms) == (0, 0)


@SOME
@given(trace=traces(priorities=1, sizes=1, cpus=1), cycle=st.sampled_from([1, 5]))
def test_twice_the_room_never_lengthens_the_queue_of_equal_pods(trace: Trace, cycle: int) -> None:
    """Pods of one size and priority wait no longer in all where every node has twice the room."""
    doubled = [
        NodeBuilder(o).cpu(2).node if type(o).__name__ == "Node" else o for o in trace.objects
    ]
    tasks = [
        replace(t, withdrawn_ms=None, work_ms=10_000)  # equal in what they have to do as well
        for t in trace.tasks
    ]
    options = Options(cycle_ms=cycle)
    one = run(replace(trace, tasks=tasks), options)
    two = run(replace(trace, tasks=tasks, objects=doubled), options)
    assert two.timeline.waiting_mean <= one.timeline.waiting_mean
