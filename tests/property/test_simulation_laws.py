"""Laws of simulations: of pods, of nodes, of work and of time.

Traces are small and contended: pods of three sizes and priorities on few nodes. In most of them
some run at the start, and nodes and budgets of every form change on the way. Pods request one
resource, so that a node's room is a number.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, replace
from math import ceil

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import Node, Pod, PodDisruptionBudget, PodStatus, key_of
from policy.cluster.snapshot import Snapshot
from policy.scheduling.cycle import Scheduler
from policy.scheduling.settle import VirtualClock
from policy.simulation.lives import Lives, Where
from policy.simulation.options import Options, Restart
from policy.simulation.run import Result, Unrecorded, objects_at_start, simulate
from policy.simulation.simulator import Simulator
from policy.simulation.trace import Trace, TraceEvent, TracePod
from tests.support.builders import NOW_MS, NodeBuilder, a_node, a_pdb, a_pod, rule_set

SOME = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
RULES = ("kube-1.36", "kube-1.20", "kube-1.14")
PATIENT = """{"eligibility": {"insert": [{"at": "start", "rule": {
    "id": "patience", "when": "preemptor.waitingSeconds < 20", "verdict": "deny",
    "reason": "it waits a while first", "why": "most room comes by itself"}}]}}"""
"""What a pod may do depends on the instant."""


OFTEN = (0, 10_000)
"""Instants at which much happens, so that some of it happens at the end of a cycle."""


@st.composite
def traces(draw: st.DrawFn, *, priorities: int = 3, sizes: int = 3, cpus: int = 4) -> Trace:
    """Pods that come to a cluster that stays as it is."""
    nodes = [a_node(f"n{i}").cpu(cpus).node for i in range(draw(st.integers(1, 3)))]
    budget = a_pdb("b").selecting(app="a").allowing(draw(st.integers(0, 2))).budget
    tasks = []
    for i in range(draw(st.integers(1, 14))):
        made = draw(pods(f"p{i}", priorities, sizes))
        tasks.append(
            TracePod(
                pod=made,
                arrives_ms=NOW_MS + draw(st.sampled_from(OFTEN) | st.integers(0, 60_000)),
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


CYCLES = (1, 5, 700)


@st.composite
def pods(draw: st.DrawFn, name: str, priorities: int, sizes: int) -> Pod:
    made = a_pod(name).priority(draw(st.integers(0, priorities - 1)))
    made = made.cpu(draw(st.integers(1, sizes)))
    made = made.labelled(app="a" if draw(st.booleans()) else "b")
    grace = draw(st.sampled_from([0, 3, 30]))
    spec = with_fields(made.pod.spec, termination_grace_period_seconds=grace)
    return with_fields(made.pod, spec=spec)


@st.composite
def running(draw: st.DrawFn, name: str, node: str) -> TracePod:
    """A pod of at most 2 cpu that has run on a node for a while."""
    pod = draw(pods(name, 3, 2))
    before = draw(st.sampled_from([None, 0, 36_000_000]))
    start = None if before is None else times.to_text(NOW_MS - before)
    meta = pod.metadata
    if draw(st.integers(0, 5)) == 0:  # somebody has deleted it
        meta = with_fields(meta, deletion_timestamp=times.to_text(NOW_MS + 20_000))
    left = draw(st.none() | st.integers(0, 60_000))
    return TracePod(
        pod=with_fields(
            pod,
            metadata=meta,
            spec=with_fields(pod.spec, node_name=node),
            status=PodStatus(phase="Running", start_time=start),
        ),
        arrives_ms=NOW_MS,
        work_ms=None if left is None else left + (before or 0),
        left_ms=left,
    )


@st.composite
def budgets(draw: st.DrawFn) -> PodDisruptionBudget:
    """A budget by number or percentage, or one that says only what it allows."""
    made = a_pdb(draw(st.sampled_from("bc"))).selecting(app="a")
    allowed = made.allowing(draw(st.integers(0, 2))).budget
    amount = draw(st.integers(0, 4) | st.sampled_from(["0%", "34%", "50%", "100%"]))
    spec = made.budget.spec
    return draw(
        st.sampled_from(
            [
                allowed,
                with_fields(allowed, spec=with_fields(spec, min_available=amount)),
                with_fields(made.budget, spec=with_fields(spec, max_unavailable=amount)),
            ]
        )
    )


@st.composite
def changing(draw: st.DrawFn) -> Trace:
    """One with pods that run at the start, and with nodes and budgets that come, change and go."""
    trace = draw(traces())
    names = [o.metadata.name for o in trace.objects if isinstance(o, Node)]
    there = [
        draw(running(f"r{i}", name))
        for i, name in enumerate(names * 2)
        if draw(st.integers(0, 3))  # most of them
    ]
    events = []
    for _ in draw(st.lists(st.none(), min_size=2, max_size=8)):
        node = a_node(draw(st.sampled_from([*names, "n9"]))).cpu(4)
        budget = draw(budgets())
        change: Change = draw(
            st.sampled_from(
                [
                    ("Node", node.node.metadata.name, None),
                    ("Node", node.node.metadata.name, node.node),
                    ("Node", node.node.metadata.name, node.cordoned().node),
                    ("PodDisruptionBudget", key_of(budget), budget),
                    ("PodDisruptionBudget", key_of(budget), None),
                ]
            )
        )
        ends = [at + cycle for at in OFTEN for cycle in CYCLES]
        at = draw(st.integers(0, 60_000) | st.sampled_from(ends))
        events.append(TraceEvent(at_ms=NOW_MS + at, change=change))
    return replace(
        trace,
        objects=[*trace.objects, *draw(st.lists(budgets(), max_size=2, unique_by=key_of))],
        tasks=[*there, *trace.tasks],
        events=sorted(events, key=lambda e: e.at_ms),
    )


OPTIONS = st.builds(
    Options,
    restart=st.sampled_from([Restart.WHOLE, Restart.WHOLE, Restart.REMAINING]),
    return_ms=st.just(0),
    bare_return_ms=st.sampled_from([0, 7_000, None]),
    cycle_ms=st.sampled_from(CYCLES),
)


def run(trace: Trace, options: Options, rules: str = "kube-1.36", *, every: bool = False) -> Result:
    named = rule_set("kube-1.36", PATIENT) if rules == PATIENT else rule_set(rules)
    return simulate(trace, named, options=options, seed=1, every_cycle=every)


@SOME
@given(trace=changing() | traces(), options=OPTIONS, rules=st.sampled_from((*RULES, PATIENT)))
def test_cycles_that_are_certain_to_fail_change_nothing(
    trace: Trace, options: Options, rules: str
) -> None:
    """Made or passed over, they lead to the same events, cycles and figures."""
    every, passed = (run(trace, options, rules, every=e) for e in (True, False))
    assert replace(every, outcomes={}) == replace(passed, outcomes={})


@SOME
@given(trace=changing() | traces(), options=OPTIONS)
def test_the_same_inputs_give_the_same_result(trace: Trace, options: Options) -> None:
    """Bit for bit, with the digest of everything that happened."""
    assert asdict(run(trace, options)) == asdict(run(trace, options))


@SOME
@given(trace=changing(), options=OPTIONS)
def test_pods_nodes_and_time(trace: Trace, options: Options) -> None:
    """No pod runs twice at once, no node is above its allocatable, time never runs backwards.

    Pods start on nodes that are there.
    """
    cpu = {t.key: _cpu(t) for t in trace.tasks}
    nodes = {o.metadata.name for o in trace.objects if isinstance(o, Node)}
    on: dict[str, str] = {}
    used: dict[str, int] = defaultdict(int)
    last = NOW_MS

    def starts(key: str, node: str) -> None:
        assert key not in on
        assert node in nodes
        on[key] = node
        used[node] += cpu[key]
        assert used[node] <= 4

    def follow(at_ms: int, what: str) -> None:
        nonlocal last
        assert at_ms >= last
        last = at_ms
        key, verb, *rest = what.split()
        if verb == "Node":
            (nodes.discard if key == "removed" else nodes.add)(rest[0])
        elif verb == "started":
            starts(key, rest[0])
        elif verb in {"done", "gone", "withdrawn"} and key in on:
            used[on.pop(key)] -= cpu[key]

    for task in trace.tasks:
        if task.running:
            starts(task.key, task.pod.spec.node_name)
    simulate(trace, rule_set("kube-1.36"), options=options, seed=1, on_event=follow)


def _cpu(task: TracePod) -> int:
    (container,) = task.pod.spec.containers or ()
    assert container.resources is not None
    return int((container.resources.requests or {})["cpu"])


@SOME
@given(trace=changing(), options=OPTIONS)
def test_work_is_conserved(trace: Trace, options: Options) -> None:
    """All running is work done or work lost, and what is not done is left.

    A pod that ran at the start loses what it did before, and has to do that again, too.
    """
    tasks = {t.key: t for t in trace.tasks}
    before = {key: (t.work_ms or 0) - (t.left_ms or 0) for key, t in tasks.items() if t.running}
    for key in before:
        begun = tasks[key].pod.status.start_time
        before[key] = NOW_MS - times.parse(begun) if begun else 0
    running: dict[str, int] = {}
    ran: dict[str, int] = defaultdict(int)
    lost: dict[str, int] = defaultdict(int)
    again: dict[str, int] = defaultdict(int)
    ended: dict[str, str] = {}
    came: set[str] = set()

    def follow(at_ms: int, what: str) -> None:
        key, verb, *_ = what.split()
        if verb in {"arrived", "running"}:
            came.add(key)
        if verb in {"started", "running"}:
            running[key] = at_ms
        elif key in running and verb in {"done", "evicted", "withdrawn", "lost"}:
            run = at_ms - running.pop(key)
            ran[key] += run
            if verb in {"evicted", "lost"} and options.restart is Restart.WHOLE:
                again[key] += before.get(key, 0)
                lost[key] += run + before.get(key, 0)
            before.pop(key, None)
        if verb in {"done", "withdrawn"}:
            ended[key] = verb

    result = simulate(trace, rule_set("kube-1.36"), options=options, seed=1, on_event=follow)
    for key, since in running.items():
        ran[key] += result.end_ms - since
    found = result.everyone
    assert (found.run_ms, found.lost_ms, found.lost_before_ms, found.lost_cpu_ms) == (
        sum(ran.values()),
        sum(lost.values()),
        sum(again.values()),
        sum(1000 * _cpu(tasks[key]) * amount for key, amount in lost.items()),
    )
    assert found.run_ms + found.lost_before_ms == found.done_ms + found.lost_ms
    to_do = {
        key: (t.left_ms if t.running else t.work_ms) or 0
        for key, t in tasks.items()
        if key in came and t.work_ms is not None and ended.get(key) != "withdrawn"
    }
    done = {key: ran[key] + again[key] - lost[key] for key in came}
    assert found.done_ms == sum(done.values())
    assert sum(done[key] for key in to_do) + (found.remaining_ms or 0) == sum(
        amount + again[key] for key, amount in to_do.items()
    )
    assert all(done[key] == to_do[key] + again[key] for key, how in ended.items() if how == "done")
    groups = result.by_priority.values()
    assert found.remaining_ms == sum(group.remaining_ms or 0 for group in groups)


@SOME
@given(trace=changing(), options=OPTIONS)
def test_budgets_are_what_the_disruption_controller_makes_them(
    trace: Trace, options: Options
) -> None:
    """After every cycle, counted anew from all pods."""
    clock = VirtualClock(NOW_MS)
    rules = rule_set("kube-1.36")
    scheduler = Scheduler(
        Unrecorded(objects_at_start(trace)), rules, clock=clock, seed=1, dry_run=True
    )
    simulator = Simulator(scheduler, rules, clock, trace, options)
    for _ in simulator:
        for budget in scheduler.snapshot.budgets:
            allowed = _allowed(budget, scheduler.snapshot, simulator.lives)
            if allowed is not None:
                assert budget.status.disruptions_allowed == allowed


def _allowed(budget: PodDisruptionBudget, snapshot: Snapshot, lives: Lives) -> int | None:
    """None where the spec does not say it."""
    healthy = sum(
        pod.metadata.labels == {"app": "a"}
        and bool(pod.spec.node_name)
        and not pod.metadata.deletion_timestamp
        for _, _, pod in snapshot.in_order()
    )
    expected = sum(
        life.task.pod.metadata.labels == {"app": "a"}
        and not life.task.pod.metadata.deletion_timestamp
        and life.where in {Where.WAITING, Where.RUNNING, Where.LEAVING, Where.AWAY}
        for life in lives.by_key.values()
    )

    def share(amount: int | str) -> int:
        return amount if isinstance(amount, int) else ceil(int(amount[:-1]) * expected / 100)

    spec = budget.spec
    if spec.max_unavailable is not None:
        return max(0, healthy - max(0, expected - share(spec.max_unavailable)))
    return None if spec.min_available is None else max(0, healthy - share(spec.min_available))


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
