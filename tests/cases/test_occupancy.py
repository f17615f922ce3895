"""What the pods of a node hold of its resources, as the bars of a page say and draw it."""

from __future__ import annotations

import re
from typing import Any

from policy.audit.session_documents import queues_in_words
from policy.cluster.objects import Node, Pod
from policy.cluster.quantities import units
from policy.server.pages.occupancy import WIDTH, bar, resources, words
from policy.server.pages.rendering import TEMPLATES
from tests.support.builders import a_node, a_pod, objects


def bars(cpu: int | str, *pods: str, memory: str = "4Gi") -> dict[str, dict[str, Any]]:
    """Of a node with two pods, by resource."""
    found = objects(
        a_node("n")
        .cpu(cpu)
        .memory("4Gi")
        .running(*(a_pod(f"p{i}").cpu(one).memory(memory) for i, one in enumerate(pods)))
    )
    (node,) = (one for one in found if isinstance(one, Node))
    return {one["name"]: one for one in resources(node, [p for p in found if isinstance(p, Pod)])}


def said(bar: dict[str, Any]) -> tuple[str, str]:
    macros = TEMPLATES.get_template("occupancy.html").module
    return str(macros.requested(bar)), str(macros.strip(bar, bar["name"], WIDTH))


def test_more_than_there_is_is_said_and_drawn() -> None:
    """Not as less than nothing that is free: by how much, of what there is, and where it begins."""
    found = bars(4, "3", "2500m", memory="3Gi")
    assert {name: said(bar)[0] for name, bar in found.items() if name != "pods"} == {
        "cpu": '5.5 requested of 4 allocatable, <strong class="over">over by 1.5</strong>',
        "memory": "6 GiB requested of 4 GiB allocatable,"
        ' <strong class="over">over by 2 GiB</strong>',
    }
    drawn = said(found["cpu"])[1]
    assert 'aria-label="cpu: 5.5 requested of 4 allocatable, over by 1.5"' in drawn
    assert '<rect class="room" x="0" y="0" width="436.4" height="14"/>' in drawn
    assert '<rect class="beyond" x="436.4" y="0" width="163.6" height="14"/>' in drawn


def test_what_is_free_is_said_as_before() -> None:
    """Also where all of it is taken to the last."""
    assert [said(bars(4, *pods)["cpu"])[0] for pods in (("1",), ("3", "1"))] == [
        "1 of 4 requested, 3 free",
        "4 of 4 requested, 0 free",
    ]
    assert "beyond" not in said(bars(4, "3", "1")["cpu"])[1]


def test_a_resource_that_the_node_has_lost_is_shown_while_pods_hold_it() -> None:
    """Such as devices whose plugin has gone: all that is requested is too much."""
    found = bars(0, "1")
    assert said(found["cpu"])[0] == (
        '1 requested of 0 allocatable, <strong class="over">over by 1</strong>'
    )
    assert "cpu" not in bars(0)


def test_narrow_parts_are_drawn_as_one() -> None:
    """Neighbours of one kind, so that no edges cover what is taken; a wide one stays by itself."""
    small = [(f"p{i}", 1, "stays") for i in range(300)]
    drawn = bar("pods", 500, [*small, ("big", 20, "stays"), ("old", 1, "leaves")])
    assert [
        (part["pods"], part["amount"], part["kind"], part["x"], part["width"], part["narrow"])
        for part in drawn["parts"]
    ] == [
        ("300 pods, from p0 to p299", "300", "stays", 0.0, 360.0, False),
        ("big", "20", "stays", 360.0, 24.0, False),
        ("old", "1", "leaves", 384.0, 1.2, True),
    ]
    assert re.findall(r'class="([^"]*)"', said(drawn)[1]) == [
        *("held", "room", "stays", "stays", "leaves narrow"),
    ]


def test_large_and_small_amounts_are_no_powers_of_ten() -> None:
    """Of a node with 2 TiB of memory, and of pods with a few KiB."""
    amounts = ("2000Gi", "1023Gi", "99.5Gi", "576Mi", "64Ki", "0")
    found = [words("memory", units(one)) for one in amounts]
    assert found == ["2000 GiB", "1023 GiB", "99.5 GiB", "0.562 GiB", "0.000061 GiB", "0 GiB"]


def test_so_are_those_of_queues() -> None:
    """What a queue deserves of a cluster with 20,000 cores and 80 TiB."""
    amounts = {"cpu_milli": 20_000_500.0, "memory_bytes": 80.0 * (1 << 40), "pods": 110_000.0}
    (row,) = queues_in_words([{"queue": "gold", "deserved": amounts}])
    assert row == {"queue": "gold", "deserved": "cpu 20000, memory 81920Gi, pods 110000"}
