"""The shape of a file of batch rules, as pydantic models: the edge, and nothing behind it.

Which actions, plugins and arguments there are is checked by `loading.py`, against the registry.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from policy.batch.settings import RECORDED_NODES, Naming, Options
from policy.rules.schema import MetadataModel
from policy.rules.schema_parts import Model

_NAMES: Final = Naming()
_OPTIONS: Final = Options()
_Name = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


def _listed(value: Any) -> Any:
    """`allocate, backfill` as the list that it stands for, as schedulers' own files write it."""
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


class PluginModel(Model):
    """A plugin at its place in a tier; each of its functions can be switched off."""

    name: str
    arguments: dict[str, str | int | bool] = Field(default_factory=dict)
    enableJobOrder: bool = True
    enableJobReady: bool = True
    enableJobPipelined: bool = True
    enableTaskOrder: bool = True
    enablePreemptable: bool = True
    enableReclaimable: bool = True
    enableQueueOrder: bool = True
    enablePredicate: bool = True
    enableNodeOrder: bool = True


class TierModel(Model):
    """Plugins of which the functions are consulted together."""

    plugins: list[PluginModel]


class NamingModel(Model):
    """How pods, queues and priorities of the session are recognised."""

    schedulerName: _Name = _NAMES.scheduler
    defaultQueue: _Name = _NAMES.default_queue
    priorityClasses: bool = Field(
        _NAMES.priority_classes, description="pod groups get the priority of their class"
    )

    def value(self) -> Naming:
        return Naming(
            scheduler=self.schedulerName,
            default_queue=self.defaultQueue,
            priority_classes=self.priorityClasses,
        )


class OptionsModel(Model):
    """What kube-batch is known to get wrong; off where a file does not say otherwise."""

    keepGangs: bool = _OPTIONS.keep_gangs
    fitFirst: bool = _OPTIONS.fit_first
    rollBack: bool = _OPTIONS.roll_back
    countRoom: bool = _OPTIONS.count_room

    def value(self) -> Options:
        return Options(
            keep_gangs=self.keepGangs,
            fit_first=self.fitFirst,
            roll_back=self.rollBack,
            count_room=self.countRoom,
        )


class BatchAuditModel(Model):
    """What is stored of a session."""

    nodes: Annotated[int, Field(ge=0)] = Field(
        RECORDED_NODES,
        description="nodes of which the plugins' answers are kept where a task finds no victims",
    )


class BatchSpecModel(Model):
    """The rules of a session."""

    actions: Annotated[list[str], BeforeValidator(_listed), Field(min_length=1)]
    tiers: list[TierModel]
    naming: NamingModel = NamingModel.model_validate({})
    options: OptionsModel = OptionsModel.model_validate({})
    audit: BatchAuditModel = BatchAuditModel.model_validate({})


class BatchFileModel(Model):
    """A file of batch rules with everything that it extends merged in."""

    apiVersion: Literal["policy/v1"]
    kind: Literal["BatchRules"]
    metadata: MetadataModel
    spec: BatchSpecModel
