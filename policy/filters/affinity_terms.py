"""Pod affinity terms compiled: which pods a term selects, and in which topology.

Source: kube-scheduler `framework.AffinityTerm`, InterPodAffinity's PreFilter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policy.cluster.objects import Pod, PodAffinity, PodAffinityTerm
from policy.cluster.selectors import Labels, Selector, compile_selector
from policy.cluster.tables import LabelSet


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityTerm:
    """One affinity term, ready to be asked about pods."""

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector

    def selects(self, pod: LabelSet, namespace_labels: Labels) -> bool:
        """Does the term select a pod with these labels in a namespace with those?"""
        if pod.namespace not in self.namespaces and not self.namespace_selector.matches(
            namespace_labels
        ):
            return False
        return self.selector.matches(pod.labels)


def compile_term(term: PodAffinityTerm, *, namespace: str) -> AffinityTerm:
    """namespace: of the pod that carries the term; it is meant where the term names none."""
    if term.namespaces:
        namespaces = frozenset(term.namespaces)
    elif term.namespace_selector is None:
        namespaces = frozenset({namespace})
    else:
        namespaces = frozenset()
    return AffinityTerm(
        topology_key=term.topology_key,
        namespaces=namespaces,
        namespace_selector=compile_selector(term.namespace_selector),
        selector=compile_selector(term.label_selector),
    )


def unrolled(
    term: AffinityTerm, namespace_labels: Mapping[str, Labels], *, keep_selector: bool
) -> AffinityTerm:
    """The incoming pod's term with its namespace selector turned into names.

    A selector of everything stays. Other selectors are dropped after that (1.27, 1.28), or, by a
    quirk of 1.35, kept and asked about no labels at all (`keep_selector`).
    """
    if term.namespace_selector.empty:
        return term
    names = {n for n, labels in namespace_labels.items() if term.namespace_selector.matches(labels)}
    return AffinityTerm(
        topology_key=term.topology_key,
        namespaces=term.namespaces | names,
        namespace_selector=term.namespace_selector if keep_selector else compile_selector(None),
        selector=term.selector,
    )


def required_terms(pod: Pod, *, anti: bool) -> Sequence[PodAffinityTerm]:
    affinity = pod.spec.affinity
    if affinity is None:
        return ()
    wanted: PodAffinity | None = affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return () if wanted is None else wanted.required or ()


def invalid_selector(terms: Sequence[PodAffinityTerm]) -> bool:
    """Would the scheduler fail to parse one of the terms?"""
    return any(
        compile_selector(s).invalid for t in terms for s in (t.label_selector, t.namespace_selector)
    )
