"""Traces that are generated, and traces out of the record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import pytest
from msgspec.structs import replace

from policy.cluster import times
from policy.manifests import ManifestError
from policy.rules.problems import RulesError
from policy.scheduling.cycle import Scheduler
from policy.scheduling.settle import Settler, VirtualClock
from policy.simulation.keeping import keep
from policy.simulation.options import Durations, Options
from policy.simulation.recorded import from_record
from policy.simulation.run import simulate
from policy.simulation.trace import Trace, TraceError
from policy.simulation.workload import Generated, millis, read_workload
from policy.store import Cause, PruneScope, Store
from policy.store.journal import StoreJournal
from policy.store.record.following import Gap
from tests.support.builders import NOW_MS, PodBuilder, a_node, a_pdb, a_pod, objects, rule_set

EXAMPLE = Path(__file__).parents[2] / "examples" / "simulation" / "workload.yaml"


# --- generated ---------------------------------------------------------------------------------


def test_a_seed_gives_the_same_trace_every_time() -> None:
    """The digest of the shipped example under two seeds: a change of it would change results."""
    made = Generated(read_workload(EXAMPLE))
    assert [made(0).digest, made(0).digest == made(0).digest, made(1).digest != made(0).digest] == [
        "sha256:06488ebe8eafa46cb13066ce86ac53a6dd11b209396fab5c077c35c2b558a60b",
        True,
        True,
    ]


def test_arrivals_durations_and_sizes_are_distributed_as_the_file_says() -> None:
    """Rates, medians, ranges and weights, over twenty seeds of the example."""
    made = Generated(read_workload(EXAMPLE))
    tasks = [task for seed in range(20) for task in made(seed).tasks]
    by_kind = {
        kind: [t for t in tasks if t.pod.metadata.name.startswith(kind)]
        for kind in ("web", "report", "training")
    }
    web = sorted(t.work_ms or 0 for t in by_kind["web"])
    start = made(0).start_ms
    afternoon = sum(8 <= (t.arrives_ms - start) / 3_600_000 < 20 for t in by_kind["web"])
    small = mean(
        t.pod.spec.containers[0].resources.requests["cpu"] == "1" for t in by_kind["report"]
    )
    training = [t.work_ms or 0 for t in by_kind["training"]]
    assert len(by_kind["web"]) / 20 == pytest.approx(720, rel=0.05)
    assert web[len(web) // 2] == pytest.approx(7_200_000, rel=0.05)
    # With the rate 1 + 0.6 cos, the half of the day around the peak has 1/2 + 0.6 / pi of it.
    assert afternoon / len(web) == pytest.approx(0.691, abs=0.02)
    assert len(by_kind["report"]) / 20 == pytest.approx(288 * 4.5, rel=0.05)
    assert small == pytest.approx(0.75, abs=0.02)
    assert len(training) == 20 * 6
    assert 3_600_000 <= min(training) <= max(training) <= 10_800_000


def test_another_kind_of_pods_changes_nothing_about_the_first() -> None:
    """Each kind draws from a generator of its own."""
    workload = read_workload(EXAMPLE)
    alone = workload.model_copy(update={"pods": workload.pods[1:]})
    reports = [t for t in Generated(workload)(3).tasks if t.pod.metadata.name[0] == "r"]
    assert [t for t in Generated(alone)(3).tasks if t.pod.metadata.name[0] == "r"] == reports


@pytest.mark.parametrize(
    ("text", "length"), [("250ms", 250), ("1h30m", 5_400_000), ("7d", 604_800_000), ("1.5s", 1500)]
)
def test_times(text: str, length: int) -> None:
    """Units are put one after the other."""
    assert millis(text) == length


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("length: 1d", "length: a day", "not a time such as"),
        ("count: 20", "cuont: 20", "unknown key `cuont`"),
        ("{exponential: 40m}", "{exponential: 40m, constant: 1m}", "give one of constant"),
        ("{every: 5m}", "{every: 0s}", "`every` is longer than nothing"),
        ("[1, 8]", "[8, 1]", "`together` is a number from 1"),
        ("[1h, 3h]", "[3h, 1h]", "`uniform` is the shortest and the longest time"),
        ("length: 1d\n", "", "missing key `length`"),
        ("'1': 3,", "'1': -3,", "`cpu`: weights are not negative, and not all of them are 0"),
        ("'1': 3,", "'1': many,", "`1` must be a number, not the text `many`"),
        ("{'1': 3, '2': 1}", "{}", "`choice` must not be empty"),
        ("{choice: {'1'", "{choices: {'1'", "unknown key `choices` in `pods[1].requests.cpu`"),
        ("length: 1d", "length: 0s", "`length` is longer than nothing"),
        ("[1h, 3h]", "[1h]", "`uniform` must have at least 2 entries"),
        ("{cpu: 16, ", "{cpu: -16, ", "a node has no negative amount of `cpu`"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    """Nothing of a workload file is passed over."""
    file = tmp_path / "workload.yaml"
    file.write_text(EXAMPLE.read_text().replace(old, new))
    with pytest.raises(RulesError) as caught:
        read_workload(file)
    assert message in str(caught.value)
    assert "workload.yaml:" in str(caught.value)
    assert "not a mapping" not in str(caught.value)


def test_pods_are_described_and_not_listed(tmp_path: Path) -> None:
    """`objects` is for budgets, classes and the like."""
    file = tmp_path / "workload.yaml"
    pod = "objects: [{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {}}]\n"
    file.write_text(EXAMPLE.read_text() + pod)
    with pytest.raises(TraceError, match="`objects` holds a pod"):
        Generated(read_workload(file))(0)


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ("{apiVersion: v1, kind: PriorityClass, metadata: {name: a}, value: 1}", "(v1), which is"),
        ("{apiVersion: v1, kind: Node, metadata: {name: worker-3}}", "two objects Node worker-3"),
    ],
)
def test_an_object_that_would_be_passed_over_is_named(
    tmp_path: Path, objects: str, said: str
) -> None:
    """One of a kind that is not used, and one in place of a generated node."""
    file = tmp_path / "workload.yaml"
    file.write_text(f"{EXAMPLE.read_text()}objects: [{objects}]\n")
    with pytest.raises(TraceError) as caught:
        read_workload(file)
    assert (str(caught.value).startswith(f"{file}: "), said in str(caught.value)) == (True, True)


def test_an_amount_of_a_node_is_named_with_its_file(tmp_path: Path) -> None:
    """Its node and field, in the form of all manifests."""
    file = tmp_path / "workload.yaml"
    file.write_text(EXAMPLE.read_text().replace("{cpu: 16, memory: 64Gi", "{cpu: x, memory: 64Gi"))
    with pytest.raises(ManifestError) as caught:
        read_workload(file)
    assert str(caught.value) == (
        f"{file}: Node worker-0: status.allocatable.cpu: `x` is not a quantity\n"
        "  help: for example `500m`, `2`, `1536Mi`, `1G`"
    )


def test_a_request_that_is_none_is_named_with_its_pods_and_field(tmp_path: Path) -> None:
    """Also one that is drawn seldom; the workload's words name the pods."""
    file = tmp_path / "workload.yaml"
    file.write_text(EXAMPLE.read_text().replace("{'1': 3, '2': 1}", "{'1': 3, '2 cpus': 1}"))
    with pytest.raises(TraceError) as caught:
        Generated(read_workload(file))(0)
    field = "spec.containers[0].resources.requests.cpu"
    assert str(caught.value) == f"{file}: pods `report`: {field}: `2 cpus` is not a quantity"
    assert caught.value.help == "for example `500m`, `2`, `1536Mi`, `1G`"


def test_a_budget_of_a_workload_protects_by_its_spec(tmp_path: Path) -> None:
    """All pods are wanted, so every eviction violates it; there is no status to begin with."""
    file = tmp_path / "workload.yaml"
    file.write_text(
        "apiVersion: policy/v1\nkind: Workload\nmetadata: {name: budgets}\nlength: 1h\n"
        "nodes: [{name: n, count: 2, allocatable: {cpu: '4'}}]\n"
        "objects:\n  - {apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b},\n"
        "     spec: {minAvailable: 100%, selector: {matchLabels: {app: x}}}}\n"
        "pods:\n"
        "  - {name: low, priority: 1, labels: {app: x}, arrivals: {every: 1m, exactly: true},\n"
        "     requests: {cpu: '1'}, duration: {constant: 30m}}\n"
        "  - {name: high, priority: 9, arrivals: {every: 5m}, requests: {cpu: '2'},\n"
        "     duration: {constant: 10m}}\n"
    )
    found = simulate(Generated(read_workload(file))(0), rule_set("kube-1.36")).everyone
    assert (found.evictions, found.pdb_violations) == (28, 28)


# --- out of the record ---------------------------------------------------------------------------


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def test_the_record_of_a_settled_cluster_is_a_trace(store: Store) -> None:
    """A preempted pod and the one that its owner made in its place are one pod of the trace."""
    store.record.import_objects(
        "default",
        objects(
            a_node("n1").cpu(4).running(a_pod("low").priority(1).cpu(4).started(5)),
            a_pod("high").priority(9).cpu(4),
        ),
        at_ms=NOW_MS,
        source="test",
    )
    clock = VirtualClock(NOW_MS)
    rules = rule_set("kube-1.36")
    journal = StoreJournal(store, "default", actor="test", clock=clock)
    settler = Settler(Scheduler(journal, rules, clock=clock, seed=0), rules, clock, max_cycles=100)
    for _ in settler:
        pass
    high = store.state.load("default").objects
    (placed,) = [o for o in high if o.metadata.name == "high"]
    # 100 s later the important pod has done its work.
    done = replace(placed, status=replace(placed.status, phase="Succeeded"))
    store.record.import_objects("default", [done], at_ms=NOW_MS + 130_000, source="test")
    trace = from_record(store, "default", since_ms=None, durations=Durations.OBSERVED)
    assert (
        [(t.key, t.running, t.work_ms, t.left_ms) for t in trace.tasks],
        [(t.arrives_ms - NOW_MS) for t in trace.tasks],
        (trace.start_ms - NOW_MS, trace.end_ms - NOW_MS, list(trace.events)),
    ) == (
        [("default/high", False, 100_000, None), ("default/low", True, None, None)],
        [0, 0],
        (0, 130_000, []),
    )
    told: list[tuple[int, str]] = []
    simulate(
        trace,
        rules,
        options=Options(length_ms=200_000),
        on_event=lambda at, what: told.append((at - NOW_MS, what)),
    )
    assert told[-3:] == [
        (30_005, "default/high started n1"),
        (130_005, "default/high done"),
        (130_010, "default/low started n1"),
    ]


def test_a_budget_that_is_recorded_with_another_spec_counts_from_then_on(store: Store) -> None:
    """The spec of a recorded change is taken over, and what it allows is counted from it."""
    pods = [a_pod(f"a{i}").labelled(app="a").priority(1).cpu(2).started(5) for i in range(2)]
    made = a_pdb("b").selecting(app="a").budget
    none, both = (replace(made, spec=replace(made.spec, min_available=least)) for least in (0, 2))
    store.record.import_objects(
        "default",
        [*objects(a_node("n1").cpu(4).running(*pods)), none],
        at_ms=NOW_MS,
        source="test",
    )
    store.record.import_objects("default", [both], at_ms=NOW_MS + 10_000, source="test")
    high = a_pod("high").priority(9).cpu(2).pod
    store.record.import_objects("default", [high], at_ms=NOW_MS + 20_000, source="test")
    end = a_node("n2").cpu(0).node
    store.record.import_objects("default", [end], at_ms=NOW_MS + 30_000, source="test")
    trace = from_record(store, "default", since_ms=None, durations=Durations.OBSERVED)
    found = simulate(trace, rule_set("kube-1.36")).everyone
    assert ([e.change[:2] for e in trace.events], found.evictions, found.pdb_violations) == (
        [("PodDisruptionBudget", "default/b"), ("Node", "n2")],
        1,
        1,
    )


def test_pods_that_come_end_and_come_again_are_different_pods(store: Store) -> None:
    """Names are told apart; nodes that come are events; the part before `since` is left out."""
    node, a = a_node("n1").cpu(4), a_pod("a").cpu(1)

    def later(seconds: int, *parts: object) -> None:
        store.record.change(
            "default",
            list(parts),
            at_ms=NOW_MS + 1000 * seconds,
            source="test",
            actor="test",
            cause=Cause.LIVE,
        )

    store.record.import_objects("default", objects(node), at_ms=NOW_MS, source="test")
    one, two = a.pod, replace(a.pod, metadata=replace(a.pod.metadata, uid="2"))
    later(10, ("Pod", "default/a", one))
    later(20, ("Pod", "default/a", a.on("n1").pod))
    later(50, ("Pod", "default/a", None))
    later(60, ("Pod", "default/a", two))
    later(70, ("Node", "n2", a_node("n2").cpu(4).node))
    trace = from_record(store, "default", since_ms=NOW_MS + 5000, durations=Durations.OBSERVED)
    assert (
        [(t.key, t.arrives_ms - NOW_MS, t.work_ms) for t in trace.tasks],
        [(e.at_ms - NOW_MS, e.change[:2]) for e in trace.events],
        trace.start_ms - NOW_MS,
    ) == (
        [("default/a", 10_000, 30_000), ("default/a~2", 60_000, None)],
        [(70_000, ("Node", "n2"))],
        5_000,
    )
    with pytest.raises(
        TraceError, match=r"has not changed since .*; its last change was at 2026-11-21T00:01:10Z"
    ):
        from_record(store, "default", since_ms=NOW_MS + 80_000, durations=Durations.OBSERVED)
    assert times.to_text(trace.end_ms) == "2026-11-21T00:01:10Z"


def dumped(store: Store, seconds: int, *pods: PodBuilder) -> None:
    """What a whole dump shows of a cluster with one node, so long after NOW."""
    there = [a_node("n1").cpu(4).node, *(pod.pod for pod in pods)]
    store.record.import_objects(
        "default", there, at_ms=NOW_MS + 1000 * seconds, source="test", prune=PruneScope()
    )


def told_of(trace: Trace) -> list[tuple[str, int, int | None, int | None]]:
    """Of each pod: its key, when it comes, its work, and what is left of it, in milliseconds."""
    return [(t.key, t.arrives_ms - NOW_MS, t.work_ms, t.left_ms) for t in trace.tasks]


def test_a_pod_that_is_made_while_the_other_one_is_leaving_takes_its_place(store: Store) -> None:
    """ReplicaSets do not wait for the end of the grace period, and kubelets say `Failed` in it."""
    low = a_pod("zz-1").owned_by("ReplicaSet", "low").priority(1).cpu(4)
    again = a_pod("aa-2").owned_by("ReplicaSet", "low").priority(1).cpu(4).created(-1)
    high = a_pod("high").priority(9).cpu(4).created(-1)
    on_node = low.on("n1").started(5)
    dumped(store, 0, on_node)
    dumped(store, 60, on_node.terminating_by_preemption(), again, high)
    dumped(store, 80, on_node.terminating_by_preemption().ended("Failed"), again, high)
    dumped(store, 90, again, high.on("n1"))
    dumped(store, 200, again.on("n1"))
    dumped(store, 260, again.on("n1").ended())
    trace = from_record(store, "default", since_ms=None, durations=Durations.OBSERVED)
    assert (told_of(trace), trace.notes) == (
        [("default/zz-1", 0, 60_000, 60_000), ("default/high", 60_000, 110_000, None)],
        [],
    )
    later = from_record(store, "default", since_ms=NOW_MS + 70_000, durations=Durations.OBSERVED)
    # At its start the pod is leaving, and the one in its place is there.
    assert sorted(told_of(later)) == [
        ("default/aa-2", 70_000, 60_000, None),
        ("default/high", 70_000, 110_000, None),
        ("default/zz-1", 70_000, 310_000 + 70_000, 10_000),
    ]


def test_runs_between_two_dumps_are_as_long_as_their_pods_say(store: Store) -> None:
    """A pod that is seen with its node began at its start time; one may have ended already."""
    dumped(store, 0)
    young, short = a_pod("young").cpu(1).created(-1).on("n1"), a_pod("short").cpu(1).created(-2)
    dumped(store, 600, young.started(-3), short.on("n1").started(-4).ended())
    dumped(store, 1200, young.started(-3).ended())
    trace = from_record(store, "default", since_ms=None, durations=Durations.OBSERVED)
    assert told_of(trace) == [
        ("default/young", 60_000, 1_020_000, None),
        ("default/short", 120_000, 360_000, None),
    ]


def test_what_was_not_seen_is_said(store: Store) -> None:
    """Gaps of a followed cluster, and a cluster that holds simulations alone."""
    dumped(store, 0)
    gap = Gap(
        kind="Pod",
        reason="expired",
        since_ms=NOW_MS,
        until_ms=NOW_MS + 5000,
        since_version=3,
        until_version=12,
    )
    store.record.follow(
        "default",
        [[("Pod", "default/a", a_pod("a").cpu(1).pod)]],
        at_ms=NOW_MS + 5000,
        source="test",
        actor="test",
        gaps=[gap],
    )
    trace = from_record(store, "default", since_ms=None, durations=Durations.OBSERVED)
    rules = rule_set("kube-1.36")
    keep(store, "simulations", simulate(trace, rules), rules, at_ms=NOW_MS, actor="test")
    with pytest.raises(TraceError) as caught:
        from_record(store, "simulations", since_ms=None, durations=Durations.OBSERVED)
    assert (trace.notes, str(caught.value)) == (
        [
            "the end of 1 pod is not known; run time: until the simulation ends",
            "pods were not seen in 1 gap of the record (table `gaps`): what is known of one comes"
            " at its end",
        ],
        "no state of cluster `simulations` is recorded",
    )
