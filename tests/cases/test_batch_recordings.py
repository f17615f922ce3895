"""Sessions end as those of the real kube-batch did."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import msgspec
import pytest

from policy import RuleSet
from policy.conformance import Agreement, run, sessions

DATA = Path(__file__).parents[1] / "data" / "conformance" / "kube-batch.jsonl.gz"
SHARED = Path(os.environ.get("POLICY_SHARED", Path(__file__).parents[3] / "shared"))


def recordings() -> list[Path]:
    """The part in this repository, and the whole where it is at hand."""
    return [DATA, *sorted((SHARED / "conformance" / "kube-batch").glob("*.gz"))]


@pytest.mark.slow
@pytest.mark.parametrize("file", recordings(), ids=lambda file: f"{file.parent.name}-{file.name}")
def test_every_recorded_session_ends_alike(file: Path) -> None:
    """Binds, evictions, promises, pod groups and shares equal the recorded ones, in every field."""
    results = list(run([file], RuleSet.load("kube-1.35")))
    assert {r.id: r.differences for r in results if r.verdict is not Agreement.AGREE} == {}
    assert len(results) > 100


def recorded() -> dict[str, sessions.SessionScenario]:
    with gzip.open(DATA, "rb") as lines:
        return {s.id: s for s in map(sessions.parse, lines)}


def test_a_change_of_any_field_is_found() -> None:
    """The comparison looks at every field: one changed value makes a session differ."""
    found = recorded()["statement-0063"]
    outcome = msgspec.to_builtins(found.outcome)
    unseen = []
    for field, value in outcome.items():
        if field == "panic":
            continue
        if isinstance(value, dict):
            key, old = next(iter(value.items()), ("none", ""))
            new = (
                0.123 if isinstance(old, float) else {"phase": "?"} if field == "podGroups" else "?"
            )
            changed = {**value, key: new}
        else:
            changed = [*value, "default/another"]
        expect = msgspec.convert({**outcome, field: changed}, sessions.RecordedOutcome)
        differing = msgspec.structs.replace(found, canonical=expect)
        if sessions.compare(differing).verdict is Agreement.AGREE:
            unseen.append(field)
    assert unseen == []
    assert sessions.compare(found).verdict is Agreement.AGREE


@pytest.mark.parametrize(
    "change",
    [
        {"total": {"cpu": 1.0}},
        {"drf": {"default/hot1": 0.5}},
        {"queues": {}},
        {"queues": {"q1": {"weight": 2}}},
    ],
    ids=json.dumps,
)
def test_a_change_of_the_opening_is_found(change: dict[str, object]) -> None:
    """Figures before the first action are compared as well."""
    found = recorded()["statement-0063"]
    opening = msgspec.convert({**msgspec.to_builtins(found.open), **change}, type(found.open))
    changed = msgspec.structs.replace(found, open=opening)
    assert sessions.compare(changed).verdict is Agreement.DIFFER


def test_a_recorded_crash_asks_only_that_the_session_ends() -> None:
    """Where the original crashed, whatever else was recorded means nothing."""
    crashed = [s for s in recorded().values() if s.outcome.panic]
    assert len(crashed) == 5
    assert {sessions.compare(s).verdict for s in crashed} == {Agreement.AGREE}


def test_settings_of_the_recording_are_used() -> None:
    """Scheduler name, default queue and the switch for classes come with the recording."""
    found = recorded()["statement-0063"]
    config = msgspec.structs.replace(found.config, scheduler_name="another")
    changed = msgspec.structs.replace(found, config=config)
    assert sessions.compare(found).verdict is Agreement.AGREE
    assert sessions.compare(changed).verdict is Agreement.DIFFER


def test_an_unknown_action_agrees_with_a_crash_only() -> None:
    """The original ends its process for an unknown action; ours refuses the configuration."""
    found = recorded()["statement-0063"]
    config = msgspec.structs.replace(found.config, actions="allocate, enqueued")
    crashed = sessions.RecordedOutcome(panic="failed to find action enqueued")
    refused = msgspec.structs.replace(found, config=config)
    assert sessions.compare(refused).verdict is Agreement.DIFFER
    agreed = msgspec.structs.replace(refused, canonical=crashed)
    assert sessions.compare(agreed).verdict is Agreement.AGREE
