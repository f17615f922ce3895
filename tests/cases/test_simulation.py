"""Simulations worked out by hand: every event and every figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.objects import PodStatus, key_of
from policy.manifests import ManifestError
from policy.simulation.figures import Spread
from policy.simulation.folder import EPOCH_MS, read_trace
from policy.simulation.options import Durations, Options, Restart
from policy.simulation.run import Result, notes_on, simulate
from policy.simulation.series import TimeSeries
from policy.simulation.trace import Trace, TraceError, TracePod
from policy.simulation.truth import what_happened
from tests.support import builders
from tests.support.builders import rule_set

TRACE = Path(__file__).parents[2] / "examples" / "simulation" / "trace"
LONG = Options(length_ms=200_000)


def events(options: Options = LONG, trace: Path = TRACE) -> tuple[list[tuple[float, str]], Result]:
    """What happens, in seconds after the start, and the result."""
    told: list[tuple[float, str]] = []
    result = simulate(
        read_trace(trace),
        rule_set("kube-1.36"),
        options=options,
        on_event=lambda at, what: told.append(((at - EPOCH_MS) / 1000, what)),
    )
    return told, result


def test_every_event_of_the_trace_in_the_documentation() -> None:
    """What docs/simulation.md works out by hand is what happens."""
    told, _ = events()
    assert told == [
        (0.0, "default/batch-1 arrived"),
        (0.005, "default/batch-1 started n1"),
        (10.0, "default/web-1 arrived"),
        (10.0, "default/batch-1 evicted for default/web-1"),
        (20.0, "default/batch-2 arrived"),
        (40.0, "default/batch-1 gone"),
        (40.0, "default/batch-1 arrived"),
        (40.005, "default/web-1 started n1"),
        (40.01, "default/batch-2 started n1"),
        (70.005, "default/web-1 done"),
        (70.01, "default/batch-2 done"),
        (70.01, "default/batch-1 started n1"),
        (170.01, "default/batch-1 done"),
    ]


def test_every_figure_of_the_trace_in_the_documentation() -> None:
    """Waits, lost work and turnarounds follow from the events."""
    _, result = events()
    found = result.everyone
    assert (
        (result.cycles, dict(result.outcomes)),
        (result.nominations, result.nominations_kept, result.nominations_broken),
        (found.pods, found.arrived, found.started, found.not_started, found.done),
        (found.evictions, found.repeats, found.pdb_violations),
        (found.run_ms, found.done_ms, found.lost_ms, found.lost_cpu_ms),
        found.wait,
        found.turnaround,
        (result.timeline.waiting_highest, result.timeline.waiting_mean),
        dict(result.timeline.used_mean),
    ) == (
        (7, {"bind": 4, "no-candidate": 2, "preempt": 1}),
        (1, 1, 0),
        (3, 3, 3, 0, 3),
        (1, 0, 0),
        (169_995, 160_000, 9_995, 29_985_000),
        Spread(p50=20_010, p95=30_005, p99=30_005),
        Spread(p50=60_005, p95=170_010, p99=170_010),
        # batch-1 waits for 0.005 s and 30.010 s, web-1 for 30.005 s, batch-2 for 20.010 s.
        (3, 0.4),
        # 3 cpu from 0.005 to 170.010 but for 40.000 to 40.005, and 1 cpu for 30 s, of 4 cpu.
        {"cpu": 0.674981},
    )


def test_a_pod_that_goes_on_where_it_was_loses_nothing() -> None:
    """With `--restart remaining` the evicted pod has 90.005 s left of its 100 s."""
    told, result = events(Options(length_ms=200_000, restart=Restart.REMAINING))
    assert (told[-1], result.everyone.lost_ms, result.everyone.run_ms) == (
        (160.015, "default/batch-1 done"),
        0,
        160_000,
    )


def test_a_bare_pod_may_be_gone_for_good() -> None:
    """With `--bare-come-back never` nobody makes a pod without controller again."""
    told, result = events(Options(length_ms=200_000, bare_return_ms=None))
    about = [(at, what) for at, what in told if "batch-1" in what]
    assert (about[-1], result.everyone.done) == ((40.0, "default/batch-1 gone"), 2)


def test_a_pod_comes_back_after_a_delay() -> None:
    """The queue sees it only then."""
    told, _ = events(Options(length_ms=200_000, bare_return_ms=45_000))
    about = [(at, what.removeprefix("default/batch-1 ")) for at, what in told if "batch-1" in what]
    assert about[3:] == [
        (40.0, "gone"),
        (85.0, "arrived"),
        (85.005, "started n1"),
        (185.005, "done"),
    ]


def test_the_simulation_ends_with_the_trace() -> None:
    """What runs then has done its work so far, and what waits has not started."""
    _, result = events(Options())
    found = result.everyone
    assert (result.end_ms - result.start_ms, found.done, found.done_ms, found.lost_ms) == (
        100_000,
        2,
        30_000 + 30_000 + 29_990,
        9_995,
    )


# --- reading traces ------------------------------------------------------------------------------


def a_pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}], **spec}}


def written(folder: Path, *lines: Any, truth: list[Any] | None = None, pods: Any = ()) -> Path:
    """A trace folder with one node and these events."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "pods": "10"}},
    }
    there = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods]
    cluster = {"apiVersion": "v1", "kind": "List", "items": [node, *there]}
    (folder / "cluster.json").write_text(json.dumps(cluster))
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    if truth is not None:
        (folder / "truth.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in truth))
    return folder


def create(at: float, pod: dict[str, Any]) -> dict[str, Any]:
    return {"t": at, "op": "create", "pod": pod}


def finish(at: float, name: str) -> dict[str, Any]:
    return {"t": at, "op": "finish", "pod": {"metadata": {"name": name}}}


def put(at: float, obj: dict[str, Any]) -> dict[str, Any]:
    return {"t": at, "op": "put", "object": {"apiVersion": "v1", **obj}}


def gone(at: float, kind: str, name: str) -> dict[str, Any]:
    return {"t": at, "op": "remove", "kind": kind, "name": name}


def a_node(name: str, *, cpu: str = "4", **spec: Any) -> dict[str, Any]:
    status = {"allocatable": {"cpu": cpu, "pods": "10"}}
    return {"kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"t": 0, "op": "creat"}], 'events.jsonl:1: unknown `op` "creat"'),
        ([{"op": "create"}], "events.jsonl:1: `t` is not a number of seconds from the start"),
        ([{"t": 1, "op": "create"}], "events.jsonl:1: `pod` is missing"),
        ([create(2, a_pod("a")), finish(1, "a")], "events.jsonl:2: `t` is 1, after 2"),
        (
            [create(1, a_pod("a")), create(2, a_pod("a"))],
            "events.jsonl:2: pod `default/a` was created before",
        ),
        (
            [create(0, a_pod("a")), finish(1, "a"), finish(2, "a")],
            "events.jsonl:3: pod `default/a` finished before",
        ),
        ([{"t": 1, "op": "remove", "kind": "Node"}], "`remove` needs `kind` and `name`"),
        ([gone(1, "Nodee", "n1")], "events.jsonl:1: unknown kind `Nodee`"),
        ([gone(1, "Node", "n7")], "events.jsonl:1: there is no Node `n7` then"),
        (
            [gone(1, "Node", "n1"), gone(1, "Node", "n1")],
            "events.jsonl:2: there is no Node `n1` then",
        ),
        ([gone(1, "Pod", "default/old")], "events.jsonl:1: `remove` of a pod"),
        ([put(1, {"kind": "Pod", **a_pod("a")})], "events.jsonl:1: `put` of a pod"),
        ([put(1, {"kind": "Lease"})], "events.jsonl:1: no object of a kind that is used here"),
        (
            [put(0, a_node("n2")), put(1, a_node("n2", cpu="much"))],
            "events.jsonl:2: Node n2: status.allocatable.cpu: `much` is not a quantity",
        ),
        (
            [create(0, a_pod("a")), finish(1, "a"), create(2, a_pod("b", containers="x"))],
            "events.jsonl:3: Pod b: spec.containers: expected a list, got the string `x`",
        ),
        (
            [finish(0, "old"), create(2, a_pod("b", priorityClassName="none"))],
            "events.jsonl:2: Pod default/b: spec.priorityClassName: unknown priority class `none`",
        ),
        (
            [create(0, a_pod("a")), create(1, {**a_pod("b"), "kind": "Node", "spec": {}})],
            "events.jsonl:2: `pod` holds a Node",
        ),
        ([create(1, a_pod("old"))], "events.jsonl:1: pod `default/old` is in the cluster"),
        (
            [finish(1, "a"), create(2, a_pod("a"))],
            "events.jsonl:1: pod `default/a` finishes, and is neither in the cluster nor created",
        ),
        (
            [create(0, a_pod("a")), finish(1, "ghost")],
            "events.jsonl:2: pod `default/ghost` finishes, and is neither in the cluster nor",
        ),
        ([finish(1, "over")], "events.jsonl:1: pod `default/over` has ended before the trace"),
    ],
)
def test_a_wrong_event_is_named_with_its_line(tmp_path: Path, lines: Any, message: str) -> None:
    """Nothing of a trace is guessed: the file, the line and the field are said."""
    over = {**a_pod("over"), "status": {"phase": "Succeeded"}}
    with pytest.raises((TraceError, ManifestError)) as caught:
        read_trace(written(tmp_path, *lines, pods=[a_pod("old", nodeName="n1"), over]))
    assert message in str(caught.value)


def test_an_event_that_is_no_text_is_named_with_its_line(tmp_path: Path) -> None:
    folder = written(tmp_path, finish(1, "?"))
    events = folder / "events.jsonl"
    events.write_bytes(events.read_bytes().replace(b"?", b"\xff"))
    with pytest.raises(
        TraceError, match=r"events\.jsonl:1: not JSON: one of its texts is not UTF-8$"
    ):
        read_trace(folder)


def test_a_pod_gets_no_node_after_its_end(tmp_path: Path) -> None:
    """Its work would be less than nothing."""
    told = {"t": 7, "op": "bind", "pod": "default/a"}
    folder = written(tmp_path, create(1, a_pod("a")), finish(5, "a"), truth=[told])
    with pytest.raises(TraceError) as caught:
        read_trace(folder)
    assert "truth.jsonl:1: pod `default/a` gets a node after its `finish`" in str(caught.value)


@pytest.mark.parametrize("lines", [[], [create(0, a_pod("a"))]])
def test_a_trace_of_no_time_is_refused(tmp_path: Path, lines: Any) -> None:
    """With a length of its own the simulation goes on beyond the last event."""
    trace = read_trace(written(tmp_path, *lines))
    with pytest.raises(TraceError, match="no time passes") as caught:
        simulate(trace, rule_set("kube-1.36"))
    found = simulate(trace, rule_set("kube-1.36"), options=Options(length_ms=1000)).everyone
    assert ("--for" in caught.value.help, found.started) == (True, len(lines))


def test_work_is_the_last_run_that_the_truth_shows(tmp_path: Path) -> None:
    """From the last bind to the end; a pod that never ran and ended was withdrawn."""
    trace = read_trace(
        written(
            tmp_path,
            create(0, a_pod("ran")),
            create(0, a_pod("never")),
            finish(60, "ran"),
            finish(60, "never"),
            truth=[
                {"t": 5, "op": "bind", "pod": "default/ran", "node": "n1"},
                {"t": 10, "op": "evict", "pod": "default/ran", "node": "n1"},
                {"t": 20, "op": "bind", "pod": "default/ran", "node": "n1"},
            ],
        )
    )
    told = [(t.key, t.work_ms, t.withdrawn_ms and t.withdrawn_ms - EPOCH_MS) for t in trace.tasks]
    assert told == [("default/ran", 40_000, None), ("default/never", None, 60_000)]


def owned(name: str) -> dict[str, Any]:
    """A pod of the job `j`."""
    pod = a_pod(name)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


def test_unknown_ends_are_estimated_from_siblings(tmp_path: Path) -> None:
    """The lower median of the workload's pods that ended; the others work to the very end."""
    lines = [create(0, owned(f"j-{i}")) for i in range(5)]
    lines += [create(1, a_pod("alone"))]
    lines += [finish(10 * i, f"j-{i}") for i in range(1, 4)]
    trace = read_trace(written(tmp_path, *lines), durations=Durations.SIBLINGS)
    assert ({t.key: t.work_ms for t in trace.tasks}, list(trace.notes)) == (
        {
            "default/j-0": 20_000,
            "default/j-1": 10_000,
            "default/j-2": 20_000,
            "default/j-3": 30_000,
            "default/j-4": 20_000,
            "default/alone": None,
        },
        [
            "the end of 3 pods is not known; run time: the median of the pods of the workload"
            " for 2, until the simulation ends for 1"
        ],
    )


def test_a_node_that_goes_takes_its_room_along(tmp_path: Path) -> None:
    """`put` and `remove` change the cluster while the trace runs."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n2"},
        "status": {"allocatable": {"cpu": "4", "pods": "10"}},
    }
    wants = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}
    trace = written(
        tmp_path,
        create(0, {"metadata": {"name": "a"}, "spec": wants}),
        create(1, {"metadata": {"name": "b"}, "spec": wants}),
        {"t": 5, "op": "put", "object": node},
        {"t": 20, "op": "remove", "kind": "Node", "name": "n2"},
        create(30, {"metadata": {"name": "c"}, "spec": wants}),
    )
    told, result = events(Options(), trace)
    assert (told[3:], result.timeline.used_mean, result.everyone.lost_ms) == (
        [
            (5.0, "changed Node n2"),
            (5.005, "default/b started n2"),
            (20.0, "removed Node n2"),
            (20.0, "default/b lost its node"),
            (20.0, "default/b gone"),
            (20.0, "default/b arrived"),
        ],
        # One pod of 4 cpu runs from 0.005 s, a second one from 5.005 to 20 s, where 8 cpu are there
        # from 5 to 20 s and 4 otherwise.
        {"cpu": round((29.995 + 14.995) / 45, 6)},
        14_995,
    )


def wanting(name: str, cpu: int, priority: int = 0, **more: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]
    return a_pod(name, priority=priority, containers=containers, **more)


def test_objects_that_replace_others_stay_whatever_the_trace_says_later(tmp_path: Path) -> None:
    """What it says of their kind is left out, and so is the node that a pod comes with."""
    (tmp_path / "big.json").write_text(json.dumps({"apiVersion": "v1", **a_node("big", cpu="8")}))
    folder = written(
        tmp_path,
        create(0, wanting("a", 6, nodeName="n1")),
        put(5, a_node("n2")),
        gone(20, "Node", "n1"),
        put(30, {"kind": "Namespace", "metadata": {"name": "x"}}),
        finish(40, "a"),
    )
    trace = read_trace(folder, cluster=tmp_path / "big.json")
    result = simulate(trace, rule_set("kube-1.36"), options=Options())
    assert (
        [key_of(o) for o in trace.objects],
        [event.change[:2] for event in trace.events],
        trace.notes,
        result.timeline.used_mean,
    ) == (
        ["big"],
        [("Namespace", "x")],
        [
            "1 pod came with a node, and gets it anew",
            "2 changes of the trace left out, as other objects replace those of their kind",
        ],
        {"cpu": round(39.995 * 6 / (40 * 8), 6)},
    )


def test_what_is_passed_over_in_a_trace_is_said(tmp_path: Path) -> None:
    """Kinds that decide nothing, objects that stand twice, and keys that no event has."""
    folder = written(
        tmp_path,
        {**create(0, wanting("a", 1)), "node": "n1", "priority": 3},
        {**finish(9, "a"), "reason": "done"},
        {**put(9, a_node("n2")), "cpu": 1, "pod": {}},
    )
    cluster = json.loads((folder / "cluster.json").read_text())
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    cluster["items"] += [secret, {**secret, "kind": "ConfigMap"}, a_node("n1", cpu="9"), secret]
    (folder / "cluster.json").write_text(json.dumps(cluster))
    assert read_trace(folder).notes == [
        "cluster.json: skipped: 2 Secret, 1 ConfigMap",
        "cluster.json: 1 object stood more than once and differed; the last one was taken:"
        " `Node n1`",
        "events.jsonl: keys that mean nothing, and were not read: `node of create`,"
        " `priority of create`, `cpu of put` and 1 more",
    ]


def test_pods_that_are_never_scheduled_are_said(tmp_path: Path) -> None:
    """Of another scheduler, or with gates: they make the queue and the waits longer."""
    folder = written(
        tmp_path,
        create(0, wanting("a", 1)),
        create(1, wanting("b", 1, schedulerName="other")),
        create(2, wanting("c", 1, schedulingGates=[{"name": "x"}])),
        finish(9, "a"),
    )
    assert notes_on(read_trace(folder), Options()) == [
        "the end of 2 pods is not known; run time: until the simulation ends",
        "2 pods never start, and count as waiting: of another scheduler than `default-scheduler`,"
        " or with scheduling gates",
    ]


def test_what_nodes_had_changes_in_what_really_happened_too(tmp_path: Path) -> None:
    """A second node of 4 cpu is there from 5 to 20 s of 40 s; a pod of 4 cpu runs from 10 s."""
    folder = written(
        tmp_path,
        create(0, wanting("a", 4)),
        put(5, a_node("n2")),
        gone(20, "Node", "n2"),
        finish(40, "a"),
        truth=[{"t": 10, "op": "bind", "pod": "default/a"}],
    )
    result = what_happened(read_trace(folder), folder, Options())
    assert (result.timeline.used_mean, result.everyone.waiting_ms) == (
        {"cpu": round(30 * 4 / (25 * 4 + 15 * 8), 6)},
        10_000,
    )


def test_an_object_changes_as_often_as_it_is_put(tmp_path: Path) -> None:
    """Cordoned and uncordoned again, replaced at one instant, in the order of the lines."""
    folder = written(
        tmp_path,
        put(1, a_node("n1", unschedulable=True)),
        create(2, wanting("a", 2)),
        put(20, a_node("n1")),
        gone(40, "Node", "n1"),
        put(40, a_node("n1")),
        finish(62, "a"),
    )
    told, _ = events(Options(), folder)
    assert told == [
        (1.0, "changed Node n1"),
        (2.0, "default/a arrived"),
        (20.0, "changed Node n1"),
        (20.005, "default/a started n1"),
        (40.0, "removed Node n1"),
        (40.0, "default/a lost its node"),
        (40.0, "default/a gone"),
        (40.0, "default/a arrived"),
        (40.0, "changed Node n1"),
        (40.005, "default/a started n1"),
    ]


def test_work_that_is_lost_with_a_node_is_lost_cpu_too(tmp_path: Path) -> None:
    """No eviction, and 2 cpu for the 19.995 s that were for nothing."""
    folder = written(tmp_path, create(0, wanting("a", 2)), gone(20, "Node", "n1"), finish(60, "a"))
    _, result = events(Options(), folder)
    found = result.everyone
    assert (found.evictions, found.lost_ms, found.lost_cpu_ms) == (0, 19_995, 39_990_000)


def test_a_node_that_goes_at_the_end_of_a_cycle_takes_along_what_was_placed(tmp_path: Path) -> None:
    """The pod has not started: nothing is lost, and it does not start on a node that is gone."""
    folder = written(
        tmp_path,
        create(0, wanting("a", 2)),
        gone(0.005, "Node", "n1"),
        put(10, a_node("n2")),
        finish(60, "a"),
    )
    told, result = events(Options(), folder)
    assert (told[1:], result.everyone.lost_ms) == (
        [
            (0.005, "removed Node n1"),
            (0.005, "default/a gone"),
            (0.005, "default/a arrived"),
            (10.0, "changed Node n2"),
            (10.005, "default/a started n2"),
        ],
        0,
    )


def test_what_nodes_have_counts_from_the_instant_at_which_it_changes(tmp_path: Path) -> None:
    """Also within a cycle, which goes on with the nodes of its beginning; used and room agree."""
    folder = written(
        tmp_path,
        create(0, wanting("a", 2)),
        put(3, a_node("n2")),
        gone(6, "Node", "n2"),
        put(7, a_node("n1", cpu="8")),
        create(20, wanting("b", 6)),
        create(25, wanting("late", 1)),
        gone(26, "Node", "n1"),
        create(40, wanting("c", 1)),
    )
    told, result = events(Options(cycle_ms=10_000), folder)
    assert told == [
        (0.0, "default/a arrived"),
        (3.0, "changed Node n2"),
        (6.0, "removed Node n2"),
        (7.0, "changed Node n1"),
        (10.0, "default/a started n1"),
        (20.0, "default/b arrived"),
        (25.0, "default/late arrived"),
        (26.0, "removed Node n1"),
        # It has room there when its cycle begins, and the binding finds no node.
        (26.0, "default/a lost its node"),
        (26.0, "default/a gone"),
        (26.0, "default/a arrived"),
        (26.0, "default/b gone"),
        (26.0, "default/b arrived"),
    ]
    # 4 cpu to 7 s and 8 to 26 s, 4 more from 3 to 6 s; 2 are used from 10 to 26 s.
    room = 4 * 7 + 8 * 19 + 4 * 3
    assert (result.timeline.used_mean, result.everyone.run_ms, result.everyone.waiting_ms) == (
        {"cpu": round(2 * 16 / room, 6)},
        16_000,
        1000 * (10 + 14 + 20 + 15),
    )


def test_a_node_that_goes_in_the_last_cycle(tmp_path: Path) -> None:
    """The cycle would end after the simulated time: what there is counts to the event."""
    folder = written(tmp_path, create(0, wanting("a", 2)), gone(6, "Node", "n1"))
    told, result = events(Options(cycle_ms=10_000, length_ms=8000), folder)
    assert told[1:] == [
        (6.0, "removed Node n1"),
        (6.0, "default/a gone"),
        (6.0, "default/a arrived"),
    ]
    assert result.timeline.used_mean == {"cpu": 0.0}


def test_a_node_that_goes_twice_in_a_cycle_takes_its_pods_along_once(tmp_path: Path) -> None:
    """The pods that came back after the first time are on no node then."""
    folder = written(
        tmp_path,
        create(10, wanting("b", 1)),
        gone(12, "Node", "n1"),
        put(14, a_node("n1")),
        gone(16, "Node", "n1"),
        create(30, wanting("c", 1)),
        pods=[wanting("old", 3, nodeName="n1")],
    )
    told, _ = events(Options(cycle_ms=10_000), folder)
    assert [what for _, what in told if what.startswith("default/old")] == [
        "default/old running",
        "default/old lost its node",
        "default/old gone",
        "default/old arrived",
    ]


@pytest.mark.parametrize(
    ("restart", "figures"),
    [
        # Ten hours and 60 s of 3 cpu; then the whole 11 h are to be done, of which it does 0.
        (Restart.WHOLE, (36_060_000, 36_000_000, 3 * 36_060_000_000, 39_600_000, 3_600_000)),
        (Restart.REMAINING, (0, 0, 0, 3_540_000, 3_600_000)),
    ],
)
def test_lost_work_is_all_that_a_pod_has_done(
    tmp_path: Path, restart: Restart, figures: tuple[int, ...]
) -> None:
    """A pod that has run for ten hours when the trace begins is evicted a minute later.

    The cluster's other pod names the instant at which the trace begins.
    """
    old = wanting("old", 3, nodeName="n1")
    old["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    mark = wanting("mark", 0, nodeName="n1")
    mark["status"] = {"phase": "Running", "startTime": "2026-01-01T10:00:00Z"}
    folder = written(
        tmp_path, create(60, wanting("high", 4, 9)), finish(3600, "old"), pods=[old, mark]
    )
    result = simulate(read_trace(folder), rule_set("kube-1.36"), options=Options(restart=restart))
    low = result.by_priority[0]
    assert (
        low.lost_ms,
        low.lost_before_ms,
        low.lost_cpu_ms,
        low.remaining_ms,
        # `old` for a minute, `mark` for the hour.
        low.done_ms + low.lost_ms - low.lost_before_ms - 60_000,
    ) == figures
    assert low.run_ms == 3_660_000


def test_a_budget_counts_what_was_evicted(tmp_path: Path) -> None:
    """The disruption controller's figure follows the pods: the second eviction violates it."""
    spec = {
        "nodeName": "n1",
        "priority": 0,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
    }
    pods = [{"metadata": {"name": f"a{i}", "labels": {"app": "a"}}, "spec": spec} for i in range(2)]
    wants = {**spec, "priority": 9}
    del wants["nodeName"]
    folder = written(
        tmp_path,
        create(0, {"metadata": {"name": "x"}, "spec": wants}),
        create(1, {"metadata": {"name": "y"}, "spec": wants}),
        finish(90, "x"),
        pods=pods,
    )
    cluster = json.loads((folder / "cluster.json").read_text())
    cluster["items"].append(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "a"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "minAvailable": 1},
            "status": {"disruptionsAllowed": 1, "desiredHealthy": 1, "expectedPods": 2},
        }
    )
    (folder / "cluster.json").write_text(json.dumps(cluster))
    _, result = events(Options(), folder)
    assert (result.everyone.evictions, result.everyone.pdb_violations) == (2, 1)


def test_a_series_gives_exact_means() -> None:
    """Parts that do not divide the time share nothing twice and lose nothing."""
    series = TimeSeries(start_ms=0, end_ms=10, parts=3)
    series.add(1, 4)
    series.add(8, -3)
    series.move(10)
    # The parts are 0..4, 4..7 and 7..10.
    assert (series.means(), series.total, series.highest) == ([3.0, 4.0, 2.0], 30, 4)


@pytest.mark.parametrize("generation", ["kube-1.14", "kube-1.20", "kube-1.36"])
def test_a_pod_that_is_leaving_is_not_evicted(generation: str) -> None:
    """Earlier generations delete it once more: it does not come back for that."""
    meant = builders.a_pod("low").priority(0).cpu(2).on("n1").pod
    deleted = replace(meant.metadata, deletion_timestamp=times.to_text(EPOCH_MS + 20_000))
    low = replace(meant, metadata=deleted, status=PodStatus(phase="Running"))
    high = builders.a_pod("high").priority(10).cpu(2).pod
    trace = Trace(
        name="leaving",
        start_ms=EPOCH_MS,
        end_ms=EPOCH_MS + 60_000,
        objects=[builders.a_node("n1").cpu(2).node],
        tasks=[
            TracePod(pod=low, arrives_ms=EPOCH_MS, work_ms=9_000, left_ms=9_000),
            TracePod(pod=high, arrives_ms=EPOCH_MS, work_ms=10_000),
        ],
    )
    told: list[tuple[float, str]] = []
    simulate(
        trace,
        rule_set(generation),
        options=Options(length_ms=60_000),
        on_event=lambda at, what: told.append(((at - EPOCH_MS) / 1000, what)),
    )
    assert told == [
        (0.0, "default/low running"),
        (0.0, "default/high arrived"),
        (20.0, "default/low withdrawn"),
        (20.005, "default/high started n1"),
        (30.005, "default/high done"),
    ]
