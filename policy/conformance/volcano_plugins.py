"""Plugins that exist in Volcano's tests only, as the cases describe them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from policy.batch.model import TaskStatus
from policy.batch.volcano.framework.functions import Vote
from policy.batch.volcano.framework.model import Job, Task
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Arguments, Plugin
from policy.batch.volcano.registry import PLUGINS
from policy.filters.base import SUCCESS, UNSCHEDULABLE, Codes


class Rejecter(Plugin):
    name = "test-rejecter"
    doc = "Keeps one named group out of its queue."
    arguments: ClassVar = {"rejectJob": str}

    def __init__(self, arguments: Arguments) -> None:
        self._rejected = arguments.get("rejectJob", "")

    def open(self, session: Session) -> None:
        session.register(self.name, job_enqueueable=self.job_enqueueable)

    def job_enqueueable(self, job: Job) -> Vote:
        name = job.uid.partition("/")[2]
        return Vote.REJECT if name == self._rejected else Vote.PERMIT


class HiddenDevice(Plugin):
    name = "device-fit-after-eviction"
    doc = "Refuses `preemptor` on a node while a `preemptee` there has not been evicted."

    def open(self, session: Session) -> None:
        self._session = session
        session.register(self.name, predicate=self.predicate)

    def predicate(self, task: Task) -> Codes:
        nodes = self._session.nodes
        codes = np.full(len(nodes.names), SUCCESS, dtype=np.int8)
        if task.pod.metadata.name == "preemptor":
            for i, held in enumerate(nodes.held):
                if any(
                    h.task.pod.metadata.name == "preemptee" and h.status is not TaskStatus.RELEASING
                    for h in held.values()
                ):
                    codes[i] = UNSCHEDULABLE
        return codes


class Fake(Plugin):
    name = "fake"
    doc = "Wants pods of priority 10 gone."

    def open(self, session: Session) -> None:
        session.register(
            self.name, victims=lambda tasks: [t for t in tasks if t.pod.spec.priority == 10]
        )


_OF_TESTS: Mapping[str, type[Plugin]] = {p.name: p for p in (Rejecter, HiddenDevice, Fake)}


def plugins_of(needs: Iterable[str]) -> dict[str, Any]:
    """The registered plugins, and those of the tests that a case needs."""
    named = {need.removeprefix("testPlugin:") for need in needs}
    return {**PLUGINS, **{name: p for name, p in _OF_TESTS.items() if name in named}}
