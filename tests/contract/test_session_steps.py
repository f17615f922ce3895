"""Parts of a session: which steps are read, and which sessions concern pods of a namespace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policy.store import NotFound, SessionStep, Store
from tests.contract.builders import BY_HAND, NOW, a_cluster, made_on
from tests.contract.filled import a_session

BOUND = SessionStep(action="allocate", operation="bind", task="ml/a", node="n1")
EVICTED = SessionStep(
    action="reclaim",
    operation="evict",
    task="lab/b",
    node="n2",
    for_task="ml/a",
    detail={"outcome": "done"},
)
TRIED = SessionStep(
    action="preempt", operation="evict", task="dev/c", node="n2", reason="discarded"
)
PLACED = SessionStep(action="allocate", operation="allocate", task="dev/d", node="n1")
REFUSED = SessionStep(action="allocate", operation="bind", task="dev/e", reason="failed")


@pytest.fixture
def store(database_url):
    """Session 1 does something of everything, 2 and 3 one thing each."""
    held = (
        ((PLACED, BOUND, TRIED, EVICTED, REFUSED), 1, 1),
        ((BOUND,), 1, 0),
        ((EVICTED,), 0, 1),
    )
    with Store.open(database_url) as opened:
        opened.record.import_objects("default", a_cluster(), at_ms=NOW, source="dump.json")
        for steps, bound, evicted in held:
            session = replace(a_session(1), steps=steps, bound_count=bound, evicted_count=evicted)
            opened.record.session(
                "default",
                made_on(opened, session, "default"),
                [],
                expected_revision=1,
                at_ms=NOW,
                actor="ann",
                rules=BY_HAND,
            )
        yield opened


@pytest.mark.parametrize(
    ("namespaces", "seen"),
    [
        (["ml"], [2, 1]),
        (["lab"], [3, 1]),
        (["lab", "ml"], [3, 2, 1]),
        (["dev"], []),  # what was tried, refused or placed without being sent
        (["la", "m", "ml/a"], []),
        ([], []),
        (None, [3, 2, 1]),
    ],
)
def test_sessions_concern_whom_they_bind_and_evict(store, namespaces, seen):
    """In lists, and one by one."""
    found = store.read.sessions(kind="batch", namespaces=namespaces)
    assert [row.id for row in found] == seen
    for number in (1, 2, 3):
        if number in seen:
            row = store.read.session_row(number, kind="batch", namespaces=namespaces)
            assert row == store.read.session(number, namespaces=namespaces).row
        else:
            with pytest.raises(NotFound, match=f"there is no batch session {number}"):
                store.read.session_row(number, kind="batch", namespaces=namespaces)


def test_what_sessions_did_to_pods_of_namespaces_is_counted(store):
    """Neither what had no effect nor pods of others."""
    both = {1: {"bind": 1, "evict": 1}, 2: {"bind": 1}, 3: {"evict": 1}}
    counts = store.read.effect_counts_in
    assert counts([1, 2, 3], namespaces=["lab", "ml"]) == both
    assert counts([1, 2], namespaces=["lab", "dev"]) == {1: {"evict": 1}}
    assert counts([1, 2, 3], namespaces=[]) == {}
    assert counts([], namespaces=["lab"]) == {}


def test_what_sessions_did_to_pods_of_namespaces_is_read(store):
    """The same steps, of several sessions, without their details."""
    found = store.read.effects_in([1, 3], namespaces=["lab", "dev"])
    assert {number: list(steps) for number, steps in found.items()} == {1: [3], 3: [0]}
    assert found[1] == {3: replace(EVICTED, detail={})}
    assert store.read.effects_in([1, 2, 3], namespaces=[]) == {}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, {0: PLACED, 1: BOUND, 2: TRIED, 3: EVICTED, 4: REFUSED}),
        ({"operations": ("bind", "evict")}, {1: BOUND, 2: TRIED, 3: EVICTED, 4: REFUSED}),
        ({"effective": True}, {1: BOUND, 3: EVICTED}),
        ({"after": 1, "limit": 2}, {2: TRIED, 3: EVICTED}),
        ({"after": 4}, {}),
        ({"after": 2, "limit": 1, "details": False}, {3: replace(EVICTED, detail={})}),
    ],
)
def test_some_steps_are_read(store, wanted, found):
    """By position, in order."""
    assert list(store.read.session_steps(1, **wanted).items()) == list(found.items())
    assert (store.read.step_count(1), store.read.step_count(9)) == (5, 0)
    assert store.read.session(1, steps=False) == replace(store.read.session(1), steps=())
