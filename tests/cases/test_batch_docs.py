"""What docs/batch.md shows works as it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from policy.batch import BatchRules
from policy.batch.registry import ACTIONS, PLUGINS
from policy.batch.settings import OPTION_KEYS
from tests.support.batch import a_class, a_gang, a_node, a_queue, cluster

PAGE = (Path(__file__).parents[2] / "docs" / "batch.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("minutes", "evicted"), [(5, True), (15, False)])
def test_the_plugin_of_the_page_runs(minutes: int, evicted: bool) -> None:
    """Thirty lines make a plugin: it spares a pod that runs for ten minutes, as asked."""
    plugin, use = BLOCKS
    assert len(plugin.splitlines()) <= 30
    snapshot = cluster(
        a_node("n1", cpu=1),
        a_queue("default"),
        a_class("high", 9),
        a_gang("low", on=["n1"], cpu=1),
        a_gang("high", klass="high", waiting=1, cpu=1),
    )
    running = snapshot.pod("default/low-0")
    assert running is not None
    started = replace(running.status, start_time="2026-11-20T23:50:00Z")
    snapshot = snapshot.apply([("Pod", "default/low-0", replace(running, status=started))])
    text = f"""\
actions: preempt
tiers:
- plugins:
  - name: priority
  - {{name: fresh, arguments: {{fresh.minutes: "{minutes}"}}}}
"""
    names: dict[str, Any] = {"snapshot": snapshot, "text": text}
    exec(plugin, names)
    exec(use, names)
    result = names["result"]
    assert result.evicts == (("default/low-0",) if evicted else ())
    if not evicted:
        (step,) = result.steps
        assert dict(step.rejection.answers[0].vetoes) == {"fresh": ("default/low-0",)}


def test_the_page_names_every_action_plugin_option_and_argument() -> None:
    """Nothing that a rule file may say is missing from the page."""
    arguments = {a for plugin in PLUGINS.values() for a in plugin.arguments}
    short = {
        a if a.endswith("MemoryPressureEnable") else a.removeprefix("predicate") for a in arguments
    }
    words = {*ACTIONS, *PLUGINS, *OPTION_KEYS, *short, *BatchRules.names()}
    assert {word for word in words if f"`{word}`" not in PAGE} == set()


def test_the_rule_file_of_the_page_loads() -> None:
    """The file that the page shows is valid as it stands."""
    found = re.search(r"^    apiVersion: policy/v1\n(?:    .*\n)+", PAGE, re.MULTILINE)
    assert found is not None
    text = "\n".join(line[4:] for line in found[0].splitlines()) + "\n"
    assert BatchRules.load(text).actions == ("reclaim", "allocate", "backfill", "preempt")
