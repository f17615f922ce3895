"""What a session tells: steps, statements, plugin answers, reasons, and changes of the cluster."""

from __future__ import annotations

from policy.batch import BatchRules, SessionResult, run_session
from policy.batch.changes import carried_out
from policy.batch.explaining import why_waiting
from policy.batch.recording import Operation, Reason, StepOutcome
from policy.cluster.objects import Pod, PodGroup
from tests.support.batch import NOW_MS, a_class, a_gang, a_node, a_pod, a_queue, cluster, settled

NOW = "2026-11-21T00:00:00Z"
CLASSES = (a_class("low", 10), a_class("high", 1000))


def rules(actions: str, *tiers: str) -> BatchRules:
    """Rules with these actions, and one tier per word list."""
    return BatchRules.load(
        {
            "actions": actions,
            "tiers": [{"plugins": [{"name": n} for n in tier.split()]} for tier in tiers],
        }
    )


GANG = ("priority gang conformance", "drf predicates proportion nodeorder")


def brief(result: SessionResult) -> list[str]:
    """Steps as `operation task node outcome`."""
    return [
        " ".join(filter(None, (s.operation, s.task.split("/")[1], s.node, s.outcome)))
        for s in result.steps
    ]


# --- steps and statements ----------------------------------------------------------------------


def test_a_gang_is_sent_together() -> None:
    """Tasks are allocated one by one and bound when the last one that is needed has a node."""
    snapshot = cluster(
        a_node("n1", cpu=2), a_queue("default"), a_gang("j", minimum=2, waiting=2, cpu=1)
    )
    result = run_session(snapshot, rules("allocate", *GANG))
    assert brief(result) == [
        "allocate j-0 n1 done",
        "allocate j-1 n1 done",
        "bind j-0 n1 done",
        "bind j-1 n1 done",
    ]
    assert result.reasons == {}


def test_a_discarded_statement_is_kept_with_the_answers_that_decided() -> None:
    """A gang that finds victims for one task only gives them back; the record says who vetoed."""
    snapshot = cluster(
        a_node("n1", cpu=1),
        a_node("n2", cpu=1),
        a_queue("default"),
        *CLASSES,
        a_gang("spared", minimum=1, klass="high", on=["n1"], cpu=1),
        a_gang("taken", minimum=1, klass="low", on=["n2"], cpu=1),
        a_gang("gang", minimum=2, klass="high", waiting=2, cpu=1),
    )
    result = run_session(snapshot, rules("preempt", *GANG))
    assert brief(result) == [
        "evict taken-0 n2 discarded",
        "pipeline gang-0 n2 discarded",
        "reject gang-1 failed",
    ]
    assert (result.evicts, dict(result.pipelined)) == ((), {})
    (statement,) = result.statements
    assert (statement.job, statement.committed, statement.steps) == (
        "default/gang",
        False,
        (0, 1, 2),
    )
    chosen = result.steps[1].answer
    assert chosen is not None
    assert (chosen.node, chosen.victims, chosen.verdict) == (
        "n2",
        ("default/taken-0",),
        Reason.CHOSEN,
    )
    rejection = result.steps[2].rejection
    assert rejection is not None
    assert dict(rejection.nodes) == {Reason.VICTIMS_VETOED: 1, Reason.NO_POTENTIAL_VICTIMS: 1}
    assert [(a.node, dict(a.vetoes)) for a in rejection.answers] == [
        ("n1", {"priority": ("default/spared-0",)})
    ]
    assert dict(rejection.vetoes) == {"priority": 1}


def test_every_plugin_that_spares_a_task_is_named() -> None:
    """Vetoes are per plugin: a pod may be spared for several reasons."""
    snapshot = cluster(
        a_node("n1", cpu=2),
        a_queue("default"),
        *CLASSES,
        a_gang("low", minimum=2, klass="low", on=["n1", "n1"], cpu=1),
        a_pod("vital", node="n1", spec={"priority_class_name": "system-node-critical"}),
        a_gang("high", minimum=1, klass="high", waiting=1, cpu=2),
    )
    result = run_session(snapshot, rules("preempt", *GANG))
    (step,) = result.steps
    assert step.rejection is not None
    (answer,) = step.rejection.answers
    assert {plugin: sorted(spared) for plugin, spared in answer.vetoes.items()} == {
        "gang": ["default/low-0", "default/low-1"],
        "conformance": ["default/vital"],
    }


def test_an_eviction_names_its_claimant() -> None:
    """Every eviction tells for which task it is made, in which action and statement."""
    snapshot = cluster(
        a_node("n1", cpu=1),
        a_queue("q1"),
        a_queue("q2"),
        a_gang("theirs", queue="q1", on=["n1"], cpu=1),
        a_gang("ours", queue="q2", waiting=1, cpu=1),
    )
    result = run_session(snapshot, rules("reclaim", "gang", "predicates"))
    evict, pipeline = result.steps
    assert (evict.operation, evict.claimant, evict.statement) == (
        Operation.EVICT,
        "default/ours-0",
        0,
    )
    assert pipeline.answer is not None
    assert pipeline.answer.victims == (evict.task,)


def test_an_action_may_stand_twice() -> None:
    """Steps say which of two equal actions they belong to."""
    snapshot = cluster(a_node("n1", cpu=1), a_queue("default"), a_gang("j", waiting=2, cpu=1))
    result = run_session(snapshot, rules("allocate, allocate", *GANG))
    assert [(s.action, s.turn, s.operation) for s in result.steps] == [
        ("allocate", 0, "allocate"),
        ("allocate", 0, "bind"),
        ("allocate", 0, "reject"),
        ("allocate", 1, "reject"),
    ]


# --- reasons -----------------------------------------------------------------------------------


def reasons(result: SessionResult) -> dict[str, Reason]:
    return {job.split("/")[-1]: reason.reason for job, reason in result.reasons.items()}


def test_every_job_that_waits_has_a_reason() -> None:
    """Nothing that is pending at the end goes without an answer to the question why."""
    snapshot = cluster(
        a_node("n1", cpu=3, memory="8Gi"),
        a_node("tiny", cpu="100m", memory="1Gi"),
        a_queue("default"),
        a_queue("full"),
        a_gang("short", minimum=3, waiting=2, cpu="10m"),
        a_gang("homeless", queue="nowhere", waiting=1),
        a_pod("orphan", group="forgotten"),
        a_gang("large", waiting=1, cpu=9),
        a_gang("partly", minimum=2, waiting=2, cpu=2),
        a_gang("fits", waiting=1, cpu=1),
        a_gang("holds", queue="full", on=["tiny"], waiting=1, cpu="50m", memory="1Gi"),
    )
    result = run_session(snapshot, rules("allocate", "priority gang", "predicates"))
    assert reasons(result) == {
        "short": Reason.TOO_FEW_TASKS,
        "homeless": Reason.LEFT_OUT,
        "forgotten": Reason.LEFT_OUT,
        "large": Reason.NO_NODE,
        "partly": Reason.GANG_INCOMPLETE,
        "holds": Reason.NO_NODE,
    }
    large = result.reasons["default/large"]
    assert large.rejection is not None
    assert (large.action, large.task, dict(large.rejection.nodes)) == (
        "allocate",
        "default/large-0",
        {"no-room": 2},
    )


def test_a_queue_that_has_its_part_is_a_reason() -> None:
    """What allocate does not try because the queue is overused is told as that."""
    snapshot = cluster(
        a_node("n1", cpu=4, memory="4Gi"),
        a_queue("greedy"),
        a_queue("other"),
        a_gang("has", queue="greedy", on=["n1", "n1"], waiting=1, cpu=1, memory="1Gi"),
        a_gang("wants", queue="other", waiting=3, cpu=1, memory="1Gi"),
    )
    result = run_session(snapshot, rules("allocate", "gang", "proportion"))
    assert reasons(result)["has"] is Reason.QUEUE_OVERUSED


def test_a_promise_is_a_reason_to_wait() -> None:
    """A task that is promised a victim's room waits for nothing but the release."""
    snapshot = cluster(
        a_node("n1", cpu=1),
        a_queue("default"),
        *CLASSES,
        a_gang("low", klass="low", on=["n1"], cpu=1),
        a_gang("high", klass="high", waiting=1, cpu=1),
    )
    result = run_session(snapshot, rules("preempt", *GANG))
    assert reasons(result) == {"high": Reason.WAITS_FOR_RELEASE}


def test_predicates_say_which_check_rejects() -> None:
    """Nodes are counted under the first check that rejects them, in the original's order."""
    snapshot = cluster(
        a_node("n1", cpu=4),
        a_node("n2", cpu=4, pods=0),
        a_node("n3", cpu=1),
        a_queue("default"),
        a_gang("j", waiting=0),
        a_pod("picky", group="j", cpu=2, spec={"node_selector": {"host": "n9"}}),
    )
    result = run_session(snapshot, rules("allocate", *GANG))
    reason = result.reasons["default/j"]
    assert reason.rejection is not None
    assert dict(reason.rejection.nodes) == {"no-room": 1, "node-affinity": 1, "pods": 1}


def test_reasons_become_sentences() -> None:
    """The words for people name job, queue, numbers, nodes, and who spared whom."""
    snapshot = cluster(
        a_node("n1", cpu=1),
        a_queue("default"),
        *CLASSES,
        a_gang("a", klass="high", on=["n1"], cpu=1),
        a_gang("b", klass="low", waiting=1, cpu=1),
    )
    result = run_session(snapshot, rules("preempt", *GANG))
    assert why_waiting(result, "default/b") == [
        "default/b (queue default): there is no node for one of its pods; minimum 1, ready 0,"
        " promised 0, pending 1",
        "preempt found no node for default/b-0: 1 node: everybody there is spared",
        "  on n1: everybody there is spared",
        "    priority spares default/a-0",
    ]
    assert why_waiting(result, "default/a") == []


# --- changes -----------------------------------------------------------------------------------


def test_changes_are_the_objects_after_the_session() -> None:
    """Bound pods have a node, evicted ones a deletion time and a condition, groups a phase."""
    snapshot = cluster(
        a_node("n1", cpu=1),
        a_node("n2", cpu=1),
        a_queue("default"),
        *CLASSES,
        a_gang("low", klass="low", on=["n1"], cpu=1),
        a_gang("high", klass="high", waiting=2, cpu=1),
    )
    result = run_session(snapshot, rules("allocate, preempt", *GANG))
    changes = {key: obj for _, key, obj in result.changes}
    bound, evicted = changes["default/high-0"], changes["default/low-0"]
    assert isinstance(bound, Pod)
    assert isinstance(evicted, Pod)
    assert bound.spec.node_name == "n2"
    assert evicted.metadata.deletion_timestamp == NOW
    assert [(c.type, c.reason) for c in evicted.status.conditions or ()] == [
        ("DisruptionTarget", "PreemptionByScheduler")
    ]
    group = changes["default/high"]
    assert isinstance(group, PodGroup)
    assert group.status.phase == "Running"
    assert "default/high-1" not in changes
    after = snapshot.apply(result.changes)
    assert after.pod("default/high-0") == bound


def test_a_single_statement_can_be_carried_out() -> None:
    """Changes can be made of any binds and evictions, not only of a whole session's."""
    snapshot = cluster(a_node("n1"), a_queue("default"), a_gang("j", on=["n1"], waiting=1))
    changes = list(
        carried_out(snapshot, binds={"default/j-1": "n1"}, evicts=["default/j-0", "default/gone"])
    )
    assert [key for _, key, _ in changes] == ["default/j-1", "default/j-0"]


def test_sessions_settle_where_victims_have_left() -> None:
    """The second session finds the room that the first one made, and binds the waiting task."""
    snapshot = cluster(
        a_node("n1", cpu=1),
        a_queue("default"),
        *CLASSES,
        a_gang("low", klass="low", on=["n1"], cpu=1),
        a_gang("high", klass="high", waiting=1, cpu=1),
    )
    rounds, after = settled(snapshot, rules("allocate, preempt", *GANG))
    assert [(i, dict(r.result.binds), r.result.evicts) for i, r in enumerate(rounds, 1)] == [
        (1, {}, ("default/low-0",)),
        (2, {"default/high-0": "n1"}, ()),
        (3, {}, ()),
    ]
    pod = after.pod("default/high-0")
    assert pod is not None
    assert (pod.status.phase, after.now_ms) == ("Running", NOW_MS)


def test_the_digest_holds_no_float() -> None:
    """Shares and amounts are text in the canonical form: no two machines print them otherwise."""
    snapshot = cluster(
        a_node("n1", cpu=3), a_queue("default"), a_gang("j", waiting=1, cpu=1, memory="1Gi")
    )
    result = run_session(snapshot, rules("allocate", *GANG))

    def floats(value: object) -> list[object]:
        if isinstance(value, dict):
            return [f for v in value.values() for f in floats(v)]
        if isinstance(value, list | tuple):
            return [f for v in value for f in floats(v)]
        return [value] if isinstance(value, float) else []

    assert floats(result.document()) == []
    assert result.document()["drf"] == {"default/j": repr(1 / 3)}
    assert result.digest.startswith("sha256:")


def test_failed_steps_are_told_from_discarded_ones() -> None:
    """A node that does not take a task is a failed step, with the reason of the refusal."""
    snapshot = cluster(
        a_node("n1", cpu=1),
        a_node("n2", cpu=3),
        a_queue("default"),
        *CLASSES,
        a_gang("low", minimum=0, klass="low", on=["n1"], cpu=1),
        a_gang("high", minimum=3, klass="high", waiting=3, cpu=1),
    )
    result = run_session(snapshot, rules("preempt, allocate", "priority gang"))
    failed = [s for s in result.steps if s.outcome is StepOutcome.FAILED and s.refusal]
    assert [(s.task, s.node, s.refusal) for s in failed] == [
        ("default/high-0", "n2", "names-another-node")
    ]
