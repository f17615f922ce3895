"""The page about the API says of each parameter what the OpenAPI document says."""

from __future__ import annotations

from typing import Any

import pytest

from policy.server.pages import reference


def described(operation: str, place: str, name: str) -> dict[str, Any]:
    (one,) = [one for one in reference.operations() if one["id"] == operation]
    entries = one["body"] if place == "body" else one["parameters"]
    (found,) = [entry for entry in entries if entry["name"] == name]
    return {key: found[key] for key in ("values", "bounds", "default")}


@pytest.mark.parametrize(
    ("operation", "place", "name", "values", "bounds", "default"),
    [
        ("listDecisions", "query", "limit", [], "1 to 1000", "100"),
        ("exportDecisions", "query", "limit", [], f"1 to {2**62}", ""),
        ("listDecisions", "query", "origin", ["decided", "extender", "simulated"], "", ""),
        ("listDecisions", "query", "node", [], "1 to 253 characters", ""),
        ("listObservations", "query", "confidence", ["certain", "likely", "possible"], "", ""),
        ("getState", "query", "kind", ["pods", "nodes"], "", "pods"),
        ("getOverview", "query", "days", [], "1 to 366", "1"),
        ("whatIf", "body", "depth", [], "1 to 100", "3"),
        ("whatIf", "body", "removed_nodes", [], "200 entries at most", ""),
        ("compare", "body", "newest", [], "1 to 500", ""),
    ],
)
def test_what_may_be_given(
    operation: str, place: str, name: str, values: list[str], bounds: str, default: str
) -> None:
    """One of some values, or something within bounds; and what is meant where it is left out."""
    expected = {"values": values, "bounds": bounds, "default": default}
    assert described(operation, place, name) == expected


def test_every_outcome_and_verdict_is_named() -> None:
    outcomes = described("listDecisions", "query", "outcome")["values"]
    verdicts = described("listObservations", "query", "verdict")["values"]
    assert ("preempt" in outcomes, "not-carried-out" in outcomes, "sampling" in verdicts) == (
        True,
        True,
        True,
    )
