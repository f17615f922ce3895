"""Why a node was not chosen that a scheduler had offered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from policy.audit.why_not import why_not_chosen
from policy.manifests import from_dicts
from policy.store import Store
from tests.support.answered import CLUSTER, SECOND, fill, offer, pod
from tests.support.builders import NOW_MS


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        fill(opened)
        yield opened


def why_not(store: Store, node: str) -> dict[str, Any]:
    found = why_not_chosen(store, store.read.decision(1), node)
    return {name: found.get(name) for name in ("answer", "text", "obstacles")}


def test_a_node_that_is_not_in_the_state(store: Store) -> None:
    """The service had not heard of it when the scheduler offered it."""
    assert offer(store, "a", node="new").outcome.value == "no-candidate"
    assert why_not(store, "new") == {
        "answer": "not-helped",
        "text": "new: the node is not in the recorded state",
        "obstacles": None,
    }


def test_room_that_another_scheduler_promised(store: Store) -> None:
    """The pod that waits for it is named, though it is none of the preemptor's own scheduler."""
    first = pod("first", 9)
    first["spec"]["schedulerName"] = "other"
    first["status"]["nominatedNodeName"] = "n1"
    objects = list(from_dicts([*CLUSTER, first]))
    store.record.import_objects("default", objects, at_ms=NOW_MS + SECOND, source="t")
    assert offer(store, "a").outcome.value == "no-candidate"
    found = why_not(store, "n1")
    assert (found["answer"], found["text"]) == (
        "not-helped",
        "n1: the room is promised to a nominated pod;"
        " the room is kept for shop/first, which is nominated there",
    )
    assert [(one["kind"], one["pods"]) for one in found["obstacles"]] == [
        ("nominated", ("shop/first",))
    ]
