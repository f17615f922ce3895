"""What a real scheduler did with an extender, done again, and decisions made from their record."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy import Snapshot
from policy.decision import messages
from policy.decision.model import Decision
from policy.extenders.client import HttpExtenders
from policy.extenders.recorded import NotRecorded, RecordedExtenders
from policy.preemption.decide import decide
from tests.support.extenders import (
    FULL,
    NOW,
    ROOMY,
    Manifest,
    Reply,
    Server,
    broken,
    decided,
    extender,
    json_reply,
    keeping,
    node,
    passing,
    pod,
    rules_with,
)

RECORDED = Path(__file__).parents[1] / "data" / "extender" / "shapes-1.35.json.gz"
RECORDED_URL = "http://127.0.0.1:28880/scheduler"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


# --- what a real scheduler did -------------------------------------------------------------------


def recorded_shapes() -> list[Any]:
    with gzip.open(RECORDED) as stream:
        shapes = json.load(stream)["shapes"]
    return [pytest.param(s, id=f"{s['run']}-{s['shape']}") for s in shapes]


def replaying(server: Server, shape: Manifest) -> None:
    """The server answers each verb as the recorded extender did."""
    for verb, recorded in shape["answers"].items():

        def reply(_: Manifest, recorded: Manifest = recorded) -> Reply:
            if "slow" in shape["shape"]:
                server.release.wait(10)
            return recorded["status"], recorded["body"].encode()

        server.verbs[verb] = reply


@pytest.mark.parametrize("shape", recorded_shapes())
def test_decisions_are_those_of_a_real_scheduler(server: Server, shape: Manifest):
    """Node, victims, event text, and the candidates that are offered, as 1.35.3 had them."""
    replaying(server, shape)
    asked = extender(
        server,
        *("filter", "prioritize", "preempt"),
        weight=1,
        httpTimeoutSeconds=1 if "slow" in shape["shape"] else 30,
        nodeCacheCapable=shape["nodeCacheCapable"],
    )
    expect = shape["expect"]
    if not {"filter", "prioritize"} & shape["answers"].keys():
        server.verbs["filter"] = server.verbs["prioritize"] = lambda _: json_reply({}, 500)
    snapshot = Snapshot.from_manifests(shape["objects"], now=NOW)
    decision = decide(snapshot, rules_with(asked), shape["pod"], extenders=HttpExtenders())
    real_text = (expect["message"] or "").replace(RECORDED_URL, server.url)
    if "[expected" in real_text:  # kube-scheduler lists these nodes in any order
        texts = sorted(real_text[real_text.index("[") + 1 : -1].split(", "))
        real_text = real_text[: real_text.index("[")] + f"[{', '.join(texts)}]"
    ours = {
        "bound": decision.effects.bind or None,
        "nominated": decision.node if decision.victims else None,
        "terminating": sorted(decision.effects.evict),
        "text": _event(decision),
        "offered": _up_to_ties(_offered(server), shape["objects"]),
    }
    assert ours == {
        "bound": expect["node"],
        "nominated": expect["nominated"],
        "terminating": expect["terminating"],
        "text": real_text,
        "offered": _up_to_ties(shape["offered"], shape["objects"]),
    }


def _event(decision: Decision) -> str:
    """Text of the FailedScheduling event."""
    if decision.trace.fits:
        return ""
    # A failure before any node has a status is told as it is.
    statuses = decision.trace.filter_statuses
    if not statuses:
        return decision.trace.message
    return messages.fit_error(decision, nodes=len(statuses), claims=True)


def _offered(server: Server) -> Manifest | None:
    """Candidates of the preempt request, whichever form it has."""
    for verb, request in server.asked:
        if verb == "preempt":
            full, meta = request["NodeNameToVictims"], request["NodeNameToMetaVictims"]
            return {
                node: {
                    "uids": [p["UID"] if full is None else p["metadata"]["uid"] for p in v["Pods"]],
                    "violations": v["NumPDBViolations"],
                }
                for node, v in (full or meta).items()
            }
    return None


def _up_to_ties(offered: Manifest | None, objects: list[Manifest]) -> Manifest | None:
    """Victims by what orders them: among equal ones kube-scheduler's sort takes any."""
    if offered is None:
        return None
    equal = {
        o["metadata"]["uid"]: (o["spec"]["priority"], o["status"].get("startTime"))
        for o in objects
        if o["kind"] == "Pod"
    }
    return {
        node: ([equal[uid] for uid in of_node["uids"]], of_node["violations"])
        for node, of_node in offered.items()
    }


# --- the record ----------------------------------------------------------------------------------


@pytest.mark.parametrize("objects", [ROOMY, FULL])
def test_a_recorded_decision_is_made_again_without_a_network(
    server: Server, objects: tuple[Manifest, ...]
):
    """The answers are part of the decision: replayed from it, the digest is the same."""
    server.verbs = {
        "filter": passing("n2", "n3"),
        "prioritize": lambda _: json_reply([{"Host": "n3", "Score": 10}]),
        "preempt": keeping(n2=["b"]),
    }
    rules = rules_with(extender(server, "filter", "prioritize", "preempt", weight=5))
    snapshot = Snapshot.from_manifests(objects, now=NOW)
    decision = decide(snapshot, rules, "shop/new", extenders=HttpExtenders())
    asked = len(server.asked)
    recorded = RecordedExtenders(decision.trace.extender_calls)
    again = decide(snapshot, rules, "shop/new", extenders=recorded)
    assert (again.digest, len(decision.trace.extender_calls), len(server.asked)) == (
        decision.digest,
        asked,
        asked,
    )


def test_a_question_that_was_asked_twice_is_answered_twice(server: Server):
    """The nominated node, alone in the cluster, is asked about again after a failure."""
    waiting = pod("new")
    waiting["status"]["nominatedNodeName"] = "n1"
    replies = [json_reply({}, 500), json_reply({"NodeNames": ["n1"]})]
    server.verbs["filter"] = lambda _: replies.pop(0)
    rules = rules_with(extender(server, "filter"))
    decision = decided(rules, node("n1"), waiting)
    calls = decision.trace.extender_calls
    snapshot = Snapshot.from_manifests([node("n1"), waiting], now=NOW)
    again = decide(snapshot, rules, "shop/new", extenders=RecordedExtenders(calls))
    assert ([c.status for c in calls], decision.node, again.digest) == (
        [500, 200],
        "n1",
        decision.digest,
    )


def test_failures_are_recorded_too(server: Server):
    """A replay meets the same failure, with the same words."""
    server.verbs["preempt"] = broken
    rules = rules_with(extender(server, "preempt"))
    decision = decided(rules, *FULL)
    (call,) = decision.trace.extender_calls
    recorded = RecordedExtenders([call])
    snapshot = Snapshot.from_manifests(FULL, now=NOW)
    again = decide(snapshot, rules, "shop/new", extenders=recorded)
    assert (call.verb, call.status, call.answer, again.digest) == (
        "preempt",
        500,
        "",
        decision.digest,
    )


def test_a_record_answers_no_other_question(server: Server):
    """On another cluster the request differs, and the record does not pretend to know."""
    server.verbs["filter"] = passing("n1")
    rules = rules_with(extender(server, "filter"))
    calls = decided(rules, *ROOMY).trace.extender_calls
    smaller = Snapshot.from_manifests(ROOMY[1:], now=NOW)
    with pytest.raises(NotRecorded, match="no recorded answer of `http"):
        decide(smaller, rules, "shop/new", extenders=RecordedExtenders(calls))
