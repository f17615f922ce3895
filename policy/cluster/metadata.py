"""What all API objects are made of: the base of their structs, metadata, selectors, numbers."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

Quantity: TypeAlias = str | int | float
"""A Kubernetes quantity as it stands in a manifest; `quantities.nano` gives its exact value."""

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Port: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65535)]
"""Whole numbers in the ranges that the API's types have; the decoder refuses what is outside."""

REST: Final = "$rest"
"""Where a pod or node keeps what else its manifest holds (`policy.cluster.whole`)."""


class Object(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False
):
    """Base of all API structs."""


class OwnerReference(Object, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Object, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None


class LabelSelectorRequirement(Object, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Object, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class Condition(Object, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


class NodeSelectorTerm(Object, frozen=True):
    match_expressions: list[LabelSelectorRequirement] | None = None
    match_fields: list[LabelSelectorRequirement] | None = None


class NodeSelector(Object, frozen=True):
    node_selector_terms: list[NodeSelectorTerm] | None = None
