"""The shape of a file of batch rules, as pydantic models: the edge, and nothing behind it.

Which actions, plugins and arguments there are is checked by `loading.py`, against the registry.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from policy.batch.settings import RECORDED_NODES, BatchOptions, Naming
from policy.rules.schema import MetadataModel
from policy.rules.schema_parts import Model

_NAMES: Final = Naming()
_OPTIONS: Final = BatchOptions()
_Name = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


def _listed(value: Any) -> Any:
    """`allocate, backfill` as the list that it stands for, as schedulers' own files write it."""
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


class PluginModel(Model):
    """A plugin at its place in a tier; each of its functions can be switched off."""

    name: str
    arguments: dict[str, str | int | bool | float | dict[str, Any]] = Field(default_factory=dict)
    enableJobOrder: bool | None = None
    enableJobReady: bool | None = None
    enableJobPipelined: bool | None = None
    enableTaskOrder: bool | None = None
    enablePreemptable: bool | None = None
    enableReclaimable: bool | None = None
    enableQueueOrder: bool | None = None
    enablePredicate: bool | None = None
    enableNodeOrder: bool | None = None
    # Flags that only Volcano's plugins have; which ones a file may use is checked with its names.
    enableJobEnqueued: bool | None = None
    enableJobStarving: bool | None = None
    enablePreemptive: bool | None = None
    enableHierarchy: bool | None = None
    enableBestNode: bool | None = None
    enableTargetJob: bool | None = None
    enableReservedNodes: bool | None = None
    enabledAllocatable: bool | None = None
    enabledOverused: bool | None = None
    enabledVictim: bool | None = None
    enabledClusterOrder: bool | None = None
    enabledHyperNodeOrder: bool | None = None
    enabledHyperNodeGradient: bool | None = None
    enabledSubJobReady: bool | None = None
    enabledSubJobPipelined: bool | None = None
    enabledSubJobOrder: bool | None = None


class ConfigurationModel(Model):
    """Arguments of an action (Volcano)."""

    name: str
    arguments: dict[str, str | int | bool | float] = Field(default_factory=dict)


class TierModel(Model):
    """Plugins of which the functions are consulted together."""

    plugins: list[PluginModel]


class NamingModel(Model):
    """How pods, queues and priorities of the session are recognised."""

    schedulerName: _Name | None = Field(
        None, description="`spec.schedulerName` of the pods; the name of the semantics by default"
    )
    defaultQueue: _Name = _NAMES.default_queue
    priorityClasses: bool = Field(
        _NAMES.priority_classes, description="pod groups get the priority of their class"
    )

    def value(self, semantics: str) -> Naming:
        return Naming(
            scheduler=self.schedulerName or semantics,
            default_queue=self.defaultQueue,
            priority_classes=self.priorityClasses,
        )


class OptionsModel(Model):
    """What kube-batch is known to get wrong; off where a file does not say otherwise."""

    keepGangs: bool = _OPTIONS.keep_gangs
    fitFirst: bool = _OPTIONS.fit_first
    rollBack: bool = _OPTIONS.roll_back
    countRoom: bool = _OPTIONS.count_room

    def value(self) -> BatchOptions:
        return BatchOptions(
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

    semantics: Literal["kube-batch", "volcano"] = Field(
        "kube-batch", description="whose sessions they are: `kube-batch` or `volcano`"
    )
    actions: Annotated[list[str], BeforeValidator(_listed), Field(min_length=1)]
    tiers: list[TierModel]
    configurations: list[ConfigurationModel] = Field(
        default_factory=list, description="arguments of actions (`volcano`)"
    )
    notModelled: list[str] = Field(
        default_factory=list,
        description="what the configuration that the rules were made from asked for beside",
    )
    naming: NamingModel = NamingModel.model_validate({})
    options: OptionsModel = OptionsModel.model_validate({})
    audit: BatchAuditModel = BatchAuditModel.model_validate({})


class BatchFileModel(Model):
    """A file of batch rules with everything that it extends merged in."""

    apiVersion: Literal["policy/v1"]
    kind: Literal["BatchRules"]
    metadata: MetadataModel
    spec: BatchSpecModel
