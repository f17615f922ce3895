"""Scorers on columns against a plain twin: one node at a time, straight from the manifests."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policy import Snapshot
from policy.filters.base import Incoming
from policy.manifests import from_dicts
from policy.preemption.placing import place, values
from policy.rules.ruleset import ScorerUse
from policy.scoring.registry import SCORERS

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NEW = "shop/new"
MIB = 1024**2
Manifest = dict[str, Any]

# --- the plain twin ------------------------------------------------------------------------------


class Plain:
    """A cluster as dicts, and the scores of one node after the other."""

    def __init__(self, objects: list[Manifest], nodes: list[str]) -> None:
        self.all_nodes = [o for o in objects if o["kind"] == "Node"]
        self.pods = [o for o in objects if o["kind"] == "Pod"]
        self.new = next(p for p in self.pods if p["metadata"]["name"] == "new")
        self.nodes = [n for n in self.all_nodes if n["metadata"]["name"] in nodes]
        self.services = [o for o in objects if o["kind"] == "Service"]
        self.replica_sets = [o for o in objects if o["kind"] == "ReplicaSet"]
        self.namespaces = {
            o["metadata"]["name"]: o["metadata"]["labels"]
            for o in objects
            if o["kind"] == "Namespace"
        }

    def scores(self, scorer: str) -> list[int] | None:
        raw: Callable[[], list[int] | None] = getattr(self, scorer.replace("-", "_"))
        return raw()

    def on(self, node: Manifest) -> list[Manifest]:
        return [p for p in self.pods if p["spec"].get("nodeName") == node["metadata"]["name"]]

    # resources

    def used(self, node: Manifest, resource: str, *, assumed: int) -> int:
        return sum(asked(p, resource, assumed) for p in [*self.on(node), self.new])

    def mean(self, node: Manifest, part: Callable[[int, int], int]) -> int:
        parts = []
        for resource, assumed in (("cpu", 100), ("memory", 200 * MIB)):
            room = amount(node["status"]["allocatable"].get(resource, "0"))
            if room:
                used = min(self.used(node, resource, assumed=assumed), room)
                parts.append(part(used, room))
        return sum(parts) // len(parts) if parts else 0

    def least_allocated(self) -> list[int]:
        return [self.mean(n, lambda used, room: (room - used) * 100 // room) for n in self.nodes]

    def most_allocated(self) -> list[int]:
        return [self.mean(n, lambda used, room: used * 100 // room) for n in self.nodes]

    def requested_to_capacity_ratio(self) -> list[int]:
        """Along a line from 0 at 0 % to 100 at 100 %; what gives nothing does not count."""
        found = []
        for node in self.nodes:
            parts = []
            for resource, assumed in (("cpu", 100), ("memory", 200 * MIB)):
                room = amount(node["status"]["allocatable"].get(resource, "0"))
                if room:
                    used = min(self.used(node, resource, assumed=assumed), room)
                    parts.append(used * 100 // room)
            parts = [part for part in parts if part > 0]
            found.append(math.floor(sum(parts) / len(parts) + 0.5) if parts else 0)
        return found

    def balanced_allocation(self) -> list[int] | None:
        if not asked(self.new, "cpu", 0) and not asked(self.new, "memory", 0):
            return None
        found = []
        for node in self.nodes:
            parts = []
            for resource in ("cpu", "memory"):
                room = amount(node["status"]["allocatable"].get(resource, "0"))
                if room:
                    parts.append(min(1.0, self.used(node, resource, assumed=0) / room))
            apart = abs(parts[0] - parts[1]) / 2 if len(parts) == 2 else 0.0
            found.append(int((1 - apart) * 100))
        return found

    # nodes

    def node_affinity(self) -> list[int] | None:
        wishes = self.new["spec"]["affinity"]["nodeAffinity"]
        preferred = wishes["preferredDuringSchedulingIgnoredDuringExecution"]
        if not preferred:
            return None
        sums = [
            sum(
                wish["weight"]
                for wish in preferred
                if all(
                    node["metadata"]["labels"].get(e["key"]) in e["values"]
                    for e in wish["preference"]["matchExpressions"]
                )
            )
            for node in self.nodes
        ]
        best = max(sums)
        return [100 * s // best if best else 0 for s in sums]

    def taints(self) -> list[int]:
        tolerated = {t["key"] for t in self.new["spec"]["tolerations"]}
        counts = [
            sum(
                t["effect"] == "PreferNoSchedule" and t["key"] not in tolerated
                for t in node["spec"]["taints"]
            )
            for node in self.nodes
        ]
        worst = max(counts)
        return [100 - (100 * c // worst if worst else 0) for c in counts]

    def image_locality(self) -> list[int] | None:
        holders: dict[str, list[str]] = {}
        sizes: dict[str, int] = {}
        for node in self.all_nodes:
            for image in node["status"]["images"]:
                for name in image["names"]:
                    sizes.setdefault(name, image["sizeBytes"])
                    if node["metadata"]["name"] not in holders.setdefault(name, []):
                        holders[name].append(node["metadata"]["name"])
        spec = self.new["spec"]
        wanted = [c["image"] for c in (*spec["initContainers"], *spec["containers"])]
        wanted = [w if ":" in w else w + ":latest" for w in wanted]
        if not any(w in holders for w in wanted):
            return None
        found = []
        for node in self.nodes:
            name = node["metadata"]["name"]
            total = sum(
                int(float(sizes[w]) * (len(holders[w]) / len(self.all_nodes)))
                for w in wanted
                if name in holders.get(w, [])
            )
            low, high = 23 * MIB, 1000 * MIB * len(wanted)
            found.append(100 * (min(max(total, low), high) - low) // (high - low))
        return found

    # pods

    def topology_spread(self) -> list[int] | None:
        constraints = self.new["spec"]["topologySpreadConstraints"]
        if not constraints:
            return self.default_spread()
        soft = [c for c in constraints if c["whenUnsatisfiable"] == "ScheduleAnyway"]
        if not soft:
            return None
        keys = [c["topologyKey"] for c in soft]
        known = [n for n in self.nodes if has_all(n, keys)]
        raw = {}
        for node in known:
            score = 0.0
            for c in soft:
                key = c["topologyKey"]
                if key == "kubernetes.io/hostname":
                    domains = len(known)
                    count = self.matching(c, [node])
                else:
                    domains = len({label(n, key) for n in known})
                    inside = [
                        n
                        for n in self.all_nodes
                        if has_all(n, keys) and label(n, key) == label(node, key)
                    ]
                    count = self.matching(c, inside)
                score += count * math.log(domains + 2) + (c["maxSkew"] - 1)
            raw[node["metadata"]["name"]] = math.floor(score + 0.5)
        if not raw:
            return [0] * len(self.nodes)
        most, least = max(raw.values()), min(raw.values())
        return [
            0
            if n["metadata"]["name"] not in raw
            else 100 * (most + least - raw[n["metadata"]["name"]]) // most
            if most
            else 100
            for n in self.nodes
        ]

    def default_spread(self) -> list[int] | None:
        mine = self.new["metadata"]["labels"]
        wanted: dict[str, str] = {}
        for service in self.services:
            if mine.items() >= service["spec"]["selector"].items():
                wanted |= service["spec"]["selector"]
        for owner in self.new["metadata"].get("ownerReferences", []):
            for owning in self.replica_sets:
                if owning["metadata"]["name"] == owner["name"]:
                    wanted |= owning["spec"]["selector"]["matchLabels"]
        if not wanted:
            return None
        counted = {"labelSelector": {"matchLabels": wanted}}
        zones = {label(n, ZONE) for n in self.nodes}
        raw = []
        for node in self.nodes:
            score = self.matching(counted, [node]) * math.log(len(self.nodes) + 2) + 2
            if label(node, ZONE) is not None:
                inside = [n for n in self.all_nodes if label(n, ZONE) == label(node, ZONE)]
                score += self.matching(counted, inside) * math.log(len(zones) + 2) + 4
            raw.append(math.floor(score + 0.5))
        most, least = max(raw), min(raw)
        return [100 * (most + least - value) // most for value in raw]

    def matching(self, constraint: Manifest, nodes: list[Manifest]) -> int:
        wanted = constraint["labelSelector"]["matchLabels"]
        return sum(
            p["metadata"]["namespace"] == "shop"
            and "deletionTimestamp" not in p["metadata"]
            and bool(wanted)
            and p["metadata"]["labels"].items() >= wanted.items()
            for node in nodes
            for p in self.on(node)
        )

    def pod_affinity(self) -> list[int] | None:
        pulls: list[tuple[str, str, int]] = []  # topology key, value, weight
        for node in self.all_nodes:
            for other in self.on(node):
                for carrier, met in ((self.new, other), (other, self.new)):
                    for term, weight in soft_terms(carrier, required=carrier is other):
                        value = label(node, term["topologyKey"])
                        if value is not None and self.selects(carrier, term, met):
                            pulls.append((term["topologyKey"], value, weight))
        if not pulls:
            return None
        raw = [
            sum(weight for key, value, weight in pulls if label(node, key) == value)
            for node in self.nodes
        ]
        most, least = max(raw), min(raw)
        return [int(100 * ((r - least) / (most - least))) if most > least else 0 for r in raw]

    def selects(self, carrier: Manifest, term: Manifest, met: Manifest) -> bool:
        inside = met["metadata"]["namespace"]
        selector = term.get("namespaceSelector")
        if selector is None:
            chosen = inside == carrier["metadata"]["namespace"]
        else:
            wanted = selector["matchLabels"]
            chosen = not wanted or self.namespaces.get(inside, {}).items() >= wanted.items()
        wanted = term["labelSelector"]["matchLabels"]
        return chosen and met["metadata"]["labels"].items() >= wanted.items()


def label(node: Manifest, key: str) -> str | None:
    found: str | None = node["metadata"]["labels"].get(key)
    return found


def has_all(node: Manifest, keys: list[str]) -> bool:
    return all(label(node, key) is not None for key in keys)


def amount(text: str) -> int:
    if text.endswith("Mi"):
        return int(text[:-2]) * MIB
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def asked(pod: Manifest, resource: str, assumed: int) -> int:
    def of(container: Manifest) -> int:
        requests = container["resources"]["requests"]
        return amount(requests[resource]) if resource in requests else assumed

    first = max((of(c) for c in pod["spec"]["initContainers"]), default=0)
    return max(sum(of(c) for c in pod["spec"]["containers"]), first)


def soft_terms(pod: Manifest, *, required: bool) -> list[tuple[Manifest, int]]:
    affinity = pod["spec"]["affinity"]
    found = []
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        preferred = affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"]
        found += [(w["podAffinityTerm"], sign * w["weight"]) for w in preferred]
    if required:
        must = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        found += [(t, 1) for t in must]
    return found


# --- clusters ------------------------------------------------------------------------------------

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
APPS = ["web", "db"]
label_sets = st.fixed_dictionaries({}, optional={"app": st.sampled_from(APPS), "x": st.just("y")})
requests = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.integers(0, 3000).map(lambda n: f"{n}m"),
        "memory": st.integers(0, 3000).map(lambda n: f"{n}Mi"),
    },
)


@st.composite
def terms(draw: st.DrawFn) -> Manifest:
    term: Manifest = {
        "labelSelector": {"matchLabels": draw(label_sets)},
        "topologyKey": draw(st.sampled_from(["zone", "rack", HOSTNAME])),
    }
    selector = draw(st.none() | st.sampled_from([{}, {"team": "a"}]))
    if selector is not None:
        term["namespaceSelector"] = {"matchLabels": selector}
    return term


weighted = st.builds(
    lambda term, weight: {"podAffinityTerm": term, "weight": weight}, terms(), st.integers(1, 100)
)


@st.composite
def containers(draw: st.DrawFn, most: int, *, name: str = "c") -> list[Manifest]:
    count = draw(st.integers(1 if most > 1 else 0, most))
    return [
        {
            "name": f"{name}{i}",
            "image": draw(st.sampled_from(["app", "app:1", "other:2"])),
            "resources": {"requests": draw(requests)},
        }
        for i in range(count)
    ]


@st.composite
def pods(draw: st.DrawFn, name: str, nodes: list[str]) -> Manifest:
    meta: Manifest = {
        "name": name,
        "namespace": "shop" if name == "new" else draw(st.sampled_from(["shop", "lab"])),
        "labels": draw(label_sets),
    }
    if name != "new" and draw(st.integers(0, 4)) == 0:
        meta["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    if draw(st.booleans()):
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
        meta["ownerReferences"] = [{**owner, "name": draw(st.sampled_from(["rs0", "rs1"]))}]
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    spread = [
        {
            "maxSkew": draw(st.integers(1, 3)),
            "topologyKey": draw(st.sampled_from(["zone", "rack", HOSTNAME])),
            "whenUnsatisfiable": draw(st.sampled_from(["ScheduleAnyway", "DoNotSchedule"])),
            "labelSelector": {"matchLabels": draw(label_sets)},
            "nodeAffinityPolicy": "Ignore",
        }
        for _ in range(draw(st.integers(0, 2)) if name == "new" else 0)
    ]
    wishes = [
        {
            "weight": draw(st.integers(1, 100)),
            "preference": {
                "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"][:n]}]
            },
        }
        for n in draw(st.lists(st.integers(1, 2), max_size=2))
    ]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": meta,
        "spec": {
            "nodeName": "" if name == "new" else draw(st.sampled_from(nodes)),
            "containers": draw(containers(2)),
            "initContainers": draw(containers(1, name="init")),
            "topologySpreadConstraints": spread,
            "tolerations": [
                {"key": key, "operator": "Exists"}
                for key in draw(st.sets(st.sampled_from("ab"), max_size=1))
            ],
            "affinity": {
                "nodeAffinity": {preferred: wishes},
                "podAffinity": {
                    preferred: draw(st.lists(weighted, max_size=2)),
                    required: draw(st.lists(terms(), max_size=1)) if name != "new" else [],
                },
                "podAntiAffinity": {preferred: draw(st.lists(weighted, max_size=1))},
            },
        },
        "status": {"phase": "Pending" if name == "new" else "Running"},
    }


@st.composite
def one_node(draw: st.DrawFn, name: str) -> Manifest:
    labels = {HOSTNAME: name, **draw(st.fixed_dictionaries({}, optional={"zone": ZONES}))}
    if draw(st.integers(0, 3)):
        labels[ZONE] = draw(ZONES)
    if draw(st.booleans()):
        labels["rack"] = draw(st.sampled_from("12"))
    allocatable = {"cpu": draw(st.sampled_from(["4", "8"])), "memory": "8192Mi", "pods": "50"}
    if draw(st.integers(0, 7)) == 0:
        del allocatable["memory"]
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "taints": [
                {"key": key, "effect": draw(st.sampled_from(["PreferNoSchedule", "NoSchedule"]))}
                for key in sorted(draw(st.sets(st.sampled_from("abc"))))
            ]
        },
        "status": {
            "allocatable": allocatable,
            "images": [
                {"names": [image], "sizeBytes": draw(st.integers(0, 1500)) * MIB}
                for image in sorted(draw(st.sets(st.sampled_from(["app:latest", "app:1"]))))
            ],
        },
    }


ZONES = st.sampled_from(["a", "b", "c"])


@st.composite
def selecting(draw: st.DrawFn) -> list[Manifest]:
    """Services and replica sets of the namespace of the new pod."""
    chosen = draw(st.lists(label_sets, max_size=3))
    return [
        {
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {"name": f"s{i}", "namespace": "shop"},
            "spec": {"selector": labels},
        }
        if draw(st.booleans())
        else {
            "kind": "ReplicaSet",
            "apiVersion": "apps/v1",
            "metadata": {"name": f"rs{i}", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": labels}},
        }
        for i, labels in enumerate(chosen)
    ]


@st.composite
def clusters(draw: st.DrawFn) -> list[Manifest]:
    names = [f"n{i}" for i in range(draw(st.integers(1, 6)))]
    return [
        {"kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "a"}}},
        {"kind": "Namespace", "metadata": {"name": "lab", "labels": {}}},
        *draw(selecting()),
        *[draw(one_node(name)) for name in names],
        *[draw(pods(f"p{i}", names)) for i in range(draw(st.integers(0, 7)))],
        draw(pods("new", names)),
    ]


def incoming(snapshot: Snapshot) -> Incoming:
    row, pod = snapshot.row(NEW), snapshot.pod(NEW)
    assert row is not None
    assert pod is not None
    return Incoming(snapshot=snapshot, pod=pod, key=NEW, row=row)


#: Scorers with a formula; `rule` has the expression of a rule file instead.
PLAIN = [name for name, scorer in SCORERS.items() if scorer.score is not None]

USES = [
    ScorerUse(name=name, weight=i + 1, parameters=SCORERS[name].defaults())
    for i, name in enumerate(PLAIN)
]


def fast(snapshot: Snapshot, names: list[str]) -> dict[str, list[int] | None]:
    nodes = np.array([snapshot.nodes.index[n] for n in names], dtype=np.int64)
    found = values(incoming(snapshot), USES, nodes)
    return {
        use.name: None if of_scorer is None else of_scorer.tolist()
        for use, of_scorer in zip(USES, found, strict=True)
    }


@settings(max_examples=200, deadline=None)
@given(clusters(), st.data())
def test_every_scorer_equals_its_plain_twin(objects: list[Manifest], data: st.DataObject):
    """On generated clusters, columns and one-node-at-a-time give the same values."""
    names = [o["metadata"]["name"] for o in objects if o["kind"] == "Node"]
    feasible = sorted(data.draw(st.sets(st.sampled_from(names), min_size=1)))
    plain = Plain(objects, feasible)
    snapshot = Snapshot.from_manifests(objects, now=NOW)
    assert fast(snapshot, feasible) == {name: plain.scores(name) for name in PLAIN}


@settings(max_examples=60, deadline=None)
@given(clusters(), st.data())
def test_the_chosen_node_has_the_highest_sum(objects: list[Manifest], data: st.DataObject):
    """The first by name of the nodes whose weighted sum of plain scores is largest."""
    names = [o["metadata"]["name"] for o in objects if o["kind"] == "Node"]
    feasible = sorted(data.draw(st.sets(st.sampled_from(names), min_size=1)))
    plain = Plain(objects, feasible)
    sums = [0] * len(feasible)
    for use in USES:
        found = plain.scores(use.name)
        if found is not None:
            sums = [s + use.weight * v for s, v in zip(sums, found, strict=True)]
    snapshot = Snapshot.from_manifests(objects, now=NOW)
    nodes = np.array([snapshot.nodes.index[n] for n in feasible], dtype=np.int64)
    chosen = snapshot.nodes.names[place(incoming(snapshot), USES, nodes).node]
    assert chosen == feasible[sums.index(max(sums))]


@settings(max_examples=60, deadline=None)
@given(clusters(), st.data())
def test_values_follow_the_cluster_through_deltas(objects: list[Manifest], data: st.DataObject):
    """Scores after pods came, went and changed are those of a snapshot built from nothing."""
    names = [o["metadata"]["name"] for o in objects if o["kind"] == "Node"]
    before = Snapshot.from_manifests(objects, now=NOW)
    fast(before, names)  # fills whatever follows the snapshot
    keyed = {(o["kind"], o["metadata"]["name"]): o for o in objects}
    changes: list[tuple[str, str, Any]] = []
    for i in range(data.draw(st.integers(1, 4))):
        name = f"p{data.draw(st.integers(0, 8))}"
        old = keyed.pop(("Pod", name), None)
        if old is not None:
            changes.append(("Pod", f"{old['metadata']['namespace']}/{name}", None))
        if old is None or data.draw(st.booleans()):
            pod = data.draw(pods(name, names), label=f"change {i}")
            keyed["Pod", name] = pod
            (typed,) = from_dicts([pod])
            changes.append(("Pod", f"{pod['metadata']['namespace']}/{name}", typed))
    if data.draw(st.booleans()):
        node = data.draw(one_node(names[0]))
        keyed["Node", names[0]] = node
        (typed,) = from_dicts([node])
        changes.append(("Node", names[0], typed))
    after = before
    for change in changes:
        after = after.apply([change])
    fresh = Snapshot.from_manifests(list(keyed.values()), now=NOW)
    assert fast(after, names) == fast(fresh, names)
