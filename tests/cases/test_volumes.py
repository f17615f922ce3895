"""What volumes keep a pod off a node, and where evicting pods helps."""

from __future__ import annotations

from typing import Any

import pytest

from policy import Snapshot
from policy.cluster.objects import PersistentVolumeClaim, Pod, kind_of
from policy.decision.model import Decision
from policy.filters.base import Incoming
from policy.filters.registry import FILTERS
from policy.filters.volume_limits import limit_key
from policy.manifests import from_dicts
from policy.preemption.decide import decide
from policy.rules import RuleSet
from tests.support.volumes import (
    DRIVER,
    NOW,
    WAITING,
    Manifest,
    claim,
    csi_node,
    node,
    pod,
    storage_class,
    volume,
)


def decided(
    *objects: Manifest, pod: str = "shop/new", rules: str = "kube-1.35", **change: Any
) -> Decision:
    rule_set = RuleSet.load(rules, overrides=change or None)
    # Without admission: zones may have names that no API server accepts any more.
    snapshot = Snapshot.from_manifests([WAITING, *objects], now=NOW, admission=False)
    return decide(snapshot, rule_set, pod)


def statuses(decision: Decision) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    found = decision.trace.filter_statuses
    return {n: (s.code.label, s.filter, s.reasons) for n, s in found.items()}


def victims(decision: Decision) -> tuple[str | None, list[str]]:
    return decision.node, [v.pod for v in decision.victims]


ONE_POD = (
    "Unschedulable",
    "volume-restrictions",
    (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod",
    ),
)
TOO_MANY = ("Unschedulable", "volume-limits", ("node(s) exceed max volume count",))


# --- claims for one pod --------------------------------------------------------------------------


def test_a_claim_for_one_pod_keeps_others_off_every_node_and_is_freed_where_its_pod_is():
    """A ReadWriteOncePod claim in use on n2 is resolvable everywhere; only n2 is a candidate."""
    decision = decided(
        node("n1"),
        node("n2"),
        claim("data", mode="ReadWriteOncePod"),
        pod("other", on="n1"),
        pod("holder", "data", on="n2"),
        pod("new", "data", priority=10),
    )
    assert (statuses(decision), list(decision.candidates.nodes), victims(decision)) == (
        {"n1": ONE_POD, "n2": ONE_POD},
        ["n2"],
        ("n2", ["shop/holder"]),
    )


def test_a_claim_held_by_a_more_important_pod_leaves_no_candidate():
    """Without the right to evict the claim's pod, evicting others helps on no node."""
    decision = decided(
        node("n1"),
        claim("data", mode="ReadWriteOncePod"),
        pod("low", on="n1"),
        pod("holder", "data", on="n1", priority=100),
        pod("new", "data", priority=10),
    )
    assert (decision.outcome.value, list(decision.candidates.nodes)) == ("no-candidate", [])


def test_a_claim_of_the_same_name_in_another_namespace_is_another_claim():
    """Only claims of the pod's own namespace are in use."""
    other = pod("holder", "data", on="n1")
    other["metadata"]["namespace"] = "lab"
    decision = decided(
        node("n1"), claim("data", mode="ReadWriteOncePod"), other, pod("new", "data")
    )
    assert victims(decision) == ("n1", [])


def test_a_claim_that_many_pods_may_use_is_no_obstacle():
    """ReadWriteOnce does not bind the scheduler: two pods of one node may use the claim."""
    decision = decided(
        node("n1"), claim("data"), pod("holder", "data", on="n1"), pod("new", "data")
    )
    assert victims(decision) == ("n1", [])


def test_before_1_27_claims_for_one_pod_do_not_count():
    """The parameter readWriteOncePod: false turns the check off, as in 1.20."""
    objects = (
        node("n1"),
        claim("data", mode="ReadWriteOncePod"),
        pod("holder", "data", on="n1", priority=100),
        pod("new", "data"),
    )
    assert [victims(decided(*objects, rules=r))[0] for r in ("kube-1.20", "kube-1.27")] == [
        "n1",
        None,
    ]


@pytest.mark.parametrize(
    ("held", "wanted", "clash"),
    [
        ({"gcePersistentDisk": {"pdName": "a"}}, {"gcePersistentDisk": {"pdName": "a"}}, True),
        (
            {"gcePersistentDisk": {"pdName": "a", "readOnly": True}},
            {"gcePersistentDisk": {"pdName": "a", "readOnly": True}},
            False,
        ),
        ({"gcePersistentDisk": {"pdName": "a"}}, {"gcePersistentDisk": {"pdName": "b"}}, False),
        (
            {"gcePersistentDisk": {"pdName": "a"}},
            {"gcePersistentDisk": {"pdName": "a", "readOnly": True}},
            True,
        ),
        (
            {"awsElasticBlockStore": {"volumeID": "v"}},
            {"awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
            True,
        ),
        (
            {"iscsi": {"iqn": "q", "readOnly": True}},
            {"iscsi": {"iqn": "q"}},
            True,
        ),
        (
            {"rbd": {"monitors": ["m1", "m2"], "image": "i"}},
            {"rbd": {"monitors": ["m2"], "image": "i"}},
            True,
        ),
        (
            {"rbd": {"monitors": ["m1"], "image": "i"}},
            {"rbd": {"monitors": ["m2"], "image": "i"}},
            False,
        ),
    ],
)
def test_an_inline_disk_is_not_shared_unless_all_only_read(
    held: Manifest, wanted: Manifest, clash: bool
):
    """Two pods of a node clash over a disk but for reading; evicting the holder resolves it."""
    decision = decided(
        node("n1"),
        pod("holder", on="n1", volumes=[{"name": "d", **held}]),
        pod("new", priority=10, volumes=[{"name": "d", **wanted}]),
    )
    assert victims(decision) == ("n1", ["shop/holder"] if clash else [])


# --- attach limits -------------------------------------------------------------------------------


def test_a_node_with_all_volumes_attached_is_freed_by_evicting_a_pod_with_a_volume():
    """The pod without a volume is reprieved; the one whose volume is detached goes."""
    decision = decided(
        node("n1"),
        csi_node("n1", 1),
        *(claim(n, n) for n in "ab"),
        *(volume(n) for n in "ab"),
        pod("plain", on="n1"),
        pod("attached", "a", on="n1"),
        pod("new", "b", priority=10),
    )
    assert (statuses(decision), victims(decision)) == (
        {"n1": TOO_MANY},
        ("n1", ["shop/attached"]),
    )


def test_a_volume_that_two_pods_share_is_detached_when_both_have_left():
    """One volume in two pods counts once, and evicting one of them frees nothing."""
    objects = (
        node("n1"),
        *(claim(n, n) for n in "ab"),
        *(volume(n) for n in "ab"),
        pod("one", "a", on="n1"),
        pod("two", "a", on="n1"),
        pod("new", "b", priority=10),
    )
    assert [victims(decided(*objects, csi_node("n1", n))) for n in (1, 2)] == [
        ("n1", ["shop/one", "shop/two"]),
        ("n1", []),
    ]


def test_a_volume_that_is_attached_already_needs_no_place():
    """Even a node beyond its limit takes a pod that brings no new volume of the driver."""
    decision = decided(
        node("n1"),
        csi_node("n1", 0),
        claim("a", "a"),
        volume("a"),
        pod("first", "a", on="n1"),
        pod("new", "a"),
    )
    assert victims(decision) == ("n1", [])


def test_two_claims_of_one_volume_count_once():
    """The driver's volumes are counted, not the claims that stand for them."""
    decision = decided(
        node("n1"),
        csi_node("n1", 1),
        claim("a", "a"),
        claim("b", "a"),
        volume("a"),
        pod("new", "a", "b"),
    )
    assert victims(decision) == ("n1", [])


def test_nodes_without_a_limit_take_any_number():
    """A node whose CSINode names no count is not limited."""
    decision = decided(
        node("n1"),
        node("n2"),
        csi_node("n1", 0),
        claim("a", "a"),
        volume("a"),
        pod("new", "a"),
    )
    assert (statuses(decision)["n1"], decision.node) == (TOO_MANY, "n2")


def test_a_limit_in_the_nodes_allocatable_counts_where_there_is_no_csi_node():
    """Old kubelets list the limit as attachable-volumes-csi-<driver>."""
    limited = node("n1")
    limited["status"]["allocatable"][limit_key(DRIVER)] = "0"
    decision = decided(limited, claim("a", "a"), volume("a"), pod("new", "a"))
    assert statuses(decision) == {"n1": TOO_MANY}


def test_nominated_pods_bring_their_volumes():
    """A more important pod that waits for the node's last place keeps it."""
    decision = decided(
        node("n1"),
        csi_node("n1", 1),
        *(claim(n, n) for n in "ab"),
        *(volume(n) for n in "ab"),
        pod("waiting", "a", priority=50, nominated="n1"),
        pod("new", "b", priority=10),
    )
    assert statuses(decision) == {"n1": TOO_MANY}


# --- node affinity and zones ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ("kube-1.35", "node(s) didn't match PersistentVolume's node affinity"),
        ("kube-1.28", "node(s) had volume node affinity conflict"),
    ],
)
def test_a_bound_volume_binds_the_pod_to_its_nodes(rules: str, text: str):
    """A node that the volume's affinity does not name is out, whoever leaves it."""
    decision = decided(
        node("n1", disk="here"),
        node("n2", disk="there"),
        claim("a", "a"),
        volume("a", nodes="here"),
        pod("new", "a"),
        rules=rules,
    )
    unusable = ("UnschedulableAndUnresolvable", "volume-binding", (text,))
    assert (statuses(decision)["n2"], decision.node) == (unusable, "n1")


ZONE = "topology.kubernetes.io_zone"
BETA = "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("labels", "fits"),
    [
        ({"topology.kubernetes.io/zone": "a"}, ["bare", "n-a"]),
        ({BETA: "a"}, ["bare", "n-a"]),
        ({"topology.kubernetes.io/zone": "a__b"}, ["bare", "n-a", "n-b"]),
        ({"topology.kubernetes.io/zone": "a__"}, ["bare", "n-a", "n-b"]),
        ({"topology.kubernetes.io/region": "r"}, ["bare"]),
        ({}, ["bare", "n-a", "n-b"]),
    ],
)
def test_a_volume_stays_in_its_zone(labels: dict[str, str], fits: list[str]):
    """Nodes need the volume's zone and region (old labels read the new ones); bare nodes fit."""
    decision = decided(
        node("n-a", **{ZONE: "a"}),
        node("n-b", **{ZONE: "b"}),
        node("bare"),
        claim("a", "a"),
        volume("a", labels=labels),
        pod("new", "a"),
    )
    wrong = (
        "UnschedulableAndUnresolvable",
        "volume-zone",
        ("node(s) had no available volume zone",),
    )
    found = statuses(decision)
    assert ([n for n, s in found.items() if s[0] == "Success"], set(found.values()) - {wrong}) == (
        fits,
        {("Success", "", ())},
    )


# --- what is missing -----------------------------------------------------------------------------


def test_a_missing_claim_rejects_the_pod_on_all_nodes():
    """Where the cluster shows claims, a pod that names another one fits nowhere."""
    decision = decided(node("n1"), claim("other"), pod("low", on="n1"), pod("new", "data"))
    assert (decision.outcome.value, decision.trace.rejected) == (
        "rejected",
        ('persistentvolumeclaim "data" not found',),
    )


NOT_SHOWN = "cannot be decided: {} is not in the state; import `kubectl get {} -A -o json`"


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        ((pod("new", "data"),), ("PersistentVolumeClaim `shop/data`", "pvc")),
        (
            (claim("data", metadata={"namespace": "lab"}), pod("new", "data")),
            ("PersistentVolumeClaim `shop/data`", "pvc"),
        ),
        (
            (pod("new", volumes=[{"name": "scratch", "ephemeral": {}}]),),
            ("PersistentVolumeClaim `shop/new-scratch`", "pvc"),
        ),
        ((claim("data", "gone"), pod("new", "data")), ("PersistentVolume `gone`", "pv")),
    ],
)
def test_what_is_not_shown_is_never_taken_as_fitting(
    objects: tuple[Manifest, ...], text: tuple[str, str]
):
    """Without claims of the namespace, or volumes, a pod with a claim cannot be decided."""
    decision = decided(node("n1"), *objects)
    assert (decision.outcome.value, decision.trace.message) == (
        "error",
        NOT_SHOWN.format(*text),
    )


def test_the_mode_of_a_class_that_is_not_shown_is_unknown():
    """Where no class is shown at all, an unbound claim may bind at once or with its pod."""
    objects = (node("n1"), claim("data"), pod("new", "data"))
    found = decide(Snapshot.from_manifests(objects, now=NOW), RuleSet.load("kube-1.35"), "shop/new")
    text = NOT_SHOWN.format("StorageClass `waiting`", "storageclasses")
    assert (found.outcome.value, found.trace.message) == ("error", text)


@pytest.mark.parametrize(("how", "outcome"), [("rejected", "rejected"), ("ignored", "bind")])
def test_rules_may_say_what_a_missing_claim_means(how: str, outcome: str):
    """`missingClaims` rejects the pod without further ado, or takes the claim as fitting."""
    filters = {"replace": [{"filter": "volume-binding", "missingClaims": how}]}
    decision = decided(node("n1"), pod("new", "data"), filters=filters)
    assert decision.outcome.value == outcome


@pytest.mark.parametrize(
    ("of_claim", "text"),
    [
        (
            claim("data", "gone", status={"phase": "Lost"}),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "gone"',
        ),
        (
            claim("data", metadata={"deletionTimestamp": "2026-11-20T00:00:00Z"}),
            'persistentvolumeclaim "data" is being deleted',
        ),
        (claim("data", "gone"), 'persistentvolume "gone" not found'),
    ],
)
def test_a_claim_that_is_of_no_use_rejects_the_pod(of_claim: Manifest, text: str):
    """Lost claims, claims on their way out and claims of vanished volumes are worse than none."""
    decision = decided(node("n1"), of_claim, volume("other"), pod("new", "data"))
    assert (decision.outcome.value, decision.trace.rejected) == ("rejected", (text,))


def test_before_1_27_a_vanished_volume_is_a_matter_of_each_node():
    """Without volume-zone's look ahead, volume-binding finds the volume missing on every node."""
    decision = decided(
        node("n1"), claim("data", "gone"), volume("other"), pod("new", "data"), rules="kube-1.20"
    )
    assert statuses(decision) == {
        "n1": (
            "UnschedulableAndUnresolvable",
            "volume-binding",
            ("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",),
        )
    }


@pytest.mark.parametrize(
    ("of_claim", "text"),
    [
        (
            claim("other"),
            "waiting for ephemeral volume controller to create the persistentvolumeclaim "
            '"new-scratch"',
        ),
        (
            claim("new-scratch"),
            "PVC shop/new-scratch was not created for pod shop/new (pod is not owner)",
        ),
        (
            claim(
                "new-scratch",
                metadata={"ownerReferences": [{"uid": "uid-new", "controller": True}]},
            ),
            None,
        ),
    ],
)
def test_the_claim_of_an_ephemeral_volume_is_made_for_its_pod(of_claim: Manifest, text: str | None):
    """The claim is named after pod and volume, and must be owned by the pod."""
    scratch = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]
    decision = decided(node("n1"), of_claim, pod("new", volumes=scratch))
    assert decision.trace.rejected == (() if text is None else (text,))


# --- unbound claims ------------------------------------------------------------------------------

UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
NO_MATCH = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"


def why(decision: Decision) -> dict[str, str]:
    """Why each node fails; "" where it does not."""
    found = decision.trace.filter_statuses
    assert {s.code.label for s in found.values() if s.reasons} <= {"UnschedulableAndUnresolvable"}
    return {name: " | ".join(s.reasons) for name, s in found.items()}


@pytest.mark.parametrize(
    "of_claim",
    [
        claim("data", spec={"storageClassName": "now"}),
        claim("data", spec={"storageClassName": ""}),
        claim("data", spec={"storageClassName": "unknown"}),
        claim("data", spec={"volumeName": "wish", "storageClassName": "waiting"}),
    ],
)
def test_a_claim_that_should_be_bound_by_now_rejects_the_pod(of_claim: Manifest):
    """Classes that bind at once, no class, an unknown class, and a volume that is only wished."""
    objects = (node("n1"), of_claim, storage_class("now", waits=False), pod("new", "data"))
    decision = decided(*objects)
    assert (decision.outcome.value, decision.trace.rejected) == ("rejected", (UNBOUND,))


def test_a_volume_is_made_where_the_class_allows_it():
    """allowedTopologies: one term of which all labels fit; a term without any fits nowhere."""

    def term(**labels: str) -> Manifest:
        wanted = [{"key": k, "values": [v]} for k, v in labels.items()]
        return {"matchLabelExpressions": wanted}

    topologies = [term(), term(zone="a", disk="ssd"), term(zone="b")]
    decision = decided(
        node("n1", zone="a", disk="ssd"),
        node("n2", zone="a"),
        node("n3", zone="b"),
        node("n4"),
        storage_class("some", allowedTopologies=topologies),
        claim("data", spec={"storageClassName": "some"}),
        pod("new", "data"),
    )
    assert why(decision) == {"n1": "", "n2": NO_MATCH, "n3": "", "n4": NO_MATCH}


def test_a_driver_that_says_what_it_has_must_have_room():
    """Capacities of the class and node count, the largest volume before the capacity."""

    def capacity(name: str, where: str, **limits: str) -> Manifest:
        return {
            "kind": "CSIStorageCapacity",
            "apiVersion": "storage.k8s.io/v1",
            "metadata": {"name": name, "namespace": "shop"},
            "storageClassName": limits.pop("of", "waiting"),
            "nodeTopology": {"matchLabels": {"zone": where}},
            **limits,
        }

    driver = {
        "kind": "CSIDriver",
        "apiVersion": "storage.k8s.io/v1",
        "metadata": {"name": "maker.example.com"},
        "spec": {"storageCapacity": True},
    }
    objects = (
        *(node(f"n-{zone}", zone=zone) for zone in "abcde"),
        capacity("a", "a", capacity="10Gi"),
        capacity("b", "b", capacity="1Gi"),
        capacity("c", "c", capacity="10Gi", maximumVolumeSize="1Gi"),
        capacity("d", "d", capacity="10Gi", of="other"),
        claim("data", spec={"resources": {"requests": {"storage": "2Gi"}}}),
        pod("new", "data"),
    )
    full = {f"n-{zone}": NO_SPACE for zone in "bcde"}
    silent = {**driver, "spec": {"storageCapacity": False}}
    assert [why(decided(driver, *objects)), why(decided(silent, *objects))] == [
        {"n-a": "", **full},
        {f"n-{zone}": "" for zone in "abcde"},
    ]


RESERVED = {"namespace": "shop", "name": "data"}
STATIC = storage_class("static", provisioner="kubernetes.io/no-provisioner")


def local(name: str, where: str, *, size: str = "10Gi", **spec: Any) -> Manifest:
    made = volume(name, nodes=where)
    made["spec"] |= {
        "storageClassName": "static",
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        **spec,
    }
    return {**made, "status": {"phase": "Available"}}


def wants(name: str, size: str = "5Gi", **spec: Any) -> Manifest:
    requests = {"requests": {"storage": size}}
    return claim(name, spec={"storageClassName": "static", "resources": requests, **spec})


@pytest.mark.parametrize(
    ("volumes", "fits"),
    [
        ([local("v", "1")], ["n1"]),
        ([local("v", "1", size="1Gi")], []),
        ([local("v", "1", storageClassName="other")], []),
        ([local("v", "1", volumeMode="Block")], []),
        ([local("v", "1", accessModes=["ReadOnlyMany"])], []),
        ([{**local("v", "1"), "status": {"phase": "Released"}}], []),
        ([local("v", "1", claimRef={"namespace": "shop", "name": "other"})], []),
        ([local("v", "1", claimRef=RESERVED)], ["n1"]),
        (
            [local("v", "1"), local("w", "2", claimRef={"namespace": "shop", "name": "data"})],
            ["n2"],
        ),
        ([local("v", "1"), local("w", "2")], ["n1", "n2"]),
        ([], []),
    ],
)
def test_a_claim_without_a_provisioner_needs_a_volume_that_exists(
    volumes: list[Manifest], fits: list[str]
):
    """Class, size, mode, access, phase and reservation of a volume decide, and its nodes."""
    objects = (node("n1", disk="1"), node("n2", disk="2"), STATIC, *volumes)
    found = why(decided(*objects, wants("data"), pod("new", "data")))
    assert found == {n: "" if n in fits else NO_MATCH for n in ("n1", "n2")}


def test_two_claims_need_two_volumes_and_the_smaller_one_chooses_first():
    """n1 has one volume for both, n2 two of which only one is large enough for the larger claim."""
    decision = decided(
        node("n1", disk="1"),
        node("n2", disk="2"),
        STATIC,
        local("a", "1"),
        local("b", "2", size="6Gi"),
        local("c", "2", size="20Gi"),
        wants("large", "10Gi"),
        wants("small", "5Gi"),
        pod("new", "large", "small"),
    )
    assert why(decision) == {"n1": NO_MATCH, "n2": ""}


def test_a_claim_whose_node_is_chosen_stays_there():
    """A provisioner that was told a node makes the volume for that node."""
    chosen = {"annotations": {"volume.kubernetes.io/selected-node": "n2"}}
    objects = (node("n1"), node("n2"), claim("data", metadata=chosen), pod("new", "data"))
    assert why(decided(*objects)) == {"n1": NO_MATCH, "n2": ""}


def test_an_unbound_claim_counts_against_the_limit_of_its_provisioner():
    """The volume that will be made takes one of the places of its driver."""
    full = storage_class("waiting", provisioner=DRIVER)
    bound = (claim("a", "a"), volume("a"), pod("holder", "a", on="n1", priority=5))
    decision = decided(
        full, node("n1"), node("n2"), csi_node("n1", 1), csi_node("n2", 1), *bound,
        claim("data"), pod("new", "data"),
    )  # fmt: skip
    assert statuses(decision) == {"n1": TOO_MANY, "n2": ("Success", "", ())}


# --- claims to devices ---------------------------------------------------------------------------


def devices(name: str, *, on: str = "", **status: Any) -> Manifest:
    terms = [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": [on]}]}]
    allocation = {"allocation": {"nodeSelector": {"nodeSelectorTerms": terms}}} if on else {}
    return {
        "kind": "ResourceClaim",
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {"name": name, "namespace": "shop"},
        "status": {**allocation, **status},
    }


def using(entry: Manifest, **status: Any) -> Manifest:
    made = pod("new")
    made["spec"]["resourceClaims"] = [{"name": "gpu", **entry}]
    made["status"] |= status
    return made


NAMED = using({"resourceClaimName": "mine"})
MADE = using({"resourceClaimTemplateName": "t"}, resourceClaimStatuses=[{"name": "gpu"}])


@pytest.mark.parametrize(
    ("objects", "outcome", "text"),
    [
        ((devices("mine", on="yes"), NAMED), "bind", ""),
        (
            (devices("other"), NAMED),
            "rejected",
            'resourceclaim.resource.k8s.io "mine" not found',
        ),
        ((NAMED,), "error", NOT_SHOWN.format("ResourceClaim `shop/mine`", "resourceclaims")),
        (
            (devices("mine"), NAMED),
            "error",
            "cannot be decided: ResourceClaim `shop/mine` is not allocated, and devices are not "
            "modelled",
        ),
        (
            (using({"resourceClaimTemplateName": "t"}),),
            "rejected",
            'pod "shop/new": pod claim gpu: ResourceClaim not created yet',
        ),
        ((MADE,), "bind", ""),
    ],
)
def test_claims_to_devices(objects: tuple[Manifest, ...], outcome: str, text: str):
    """Allocated claims keep the pod on their nodes; missing ones reject it or are not known."""
    decision = decided(node("n1"), node("n2", gpu="yes"), *objects)
    trace = decision.trace
    said = trace.rejected[0] if trace.rejected else trace.message
    assert (decision.outcome.value, said) == (outcome, text)
    if objects[-1] is NAMED and outcome == "bind":
        assert why(decision) == {"n1": "resourceclaim not available on the node", "n2": ""}


def test_before_1_34_devices_are_behind_a_gate():
    """The API server drops claims to devices there, so a manifest's are not looked at."""
    assert decided(node("n1"), NAMED, rules="kube-1.33").outcome.value == "bind"


# --- node conditions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "cpu", "reasons"),
    [
        ({"Ready": "True", "MemoryPressure": "False"}, "1", ()),
        ({"Ready": "Unknown"}, "1", ("node(s) were not ready",)),
        (
            {"Ready": "False", "NetworkUnavailable": "True", "DiskPressure": "True"},
            "1",
            ("node(s) were not ready", "node(s) had unavailable network"),
        ),
        ({"OutOfDisk": "Unknown"}, "1", ("node(s) were out of disk space",)),
        ({"DiskPressure": "True"}, "1", ("node(s) had disk pressure",)),
        ({"PIDPressure": "True"}, "1", ("node(s) had pid pressure",)),
        ({"MemoryPressure": "True"}, "1", ()),
        ({"MemoryPressure": "True", "PIDPressure": "True"}, None, ("node(s) had memory pressure",)),
    ],
)
def test_1_14_reads_node_conditions(
    conditions: dict[str, str], cpu: str | None, reasons: tuple[str, ...]
):
    """Conditions rule a node out for good; memory pressure only for best-effort pods."""
    decision = decided(
        node("n1", conditions=conditions),
        pod("low", on="n1"),
        pod("new", cpu=cpu, priority=10),
        rules="kube-1.14",
    )
    expected = (
        ("UnschedulableAndUnresolvable", "node-conditions", reasons)
        if reasons
        else ("Success", "", ())
    )
    assert statuses(decision) == {"n1": expected}


# --- cost and deltas -----------------------------------------------------------------------------


def test_volume_filters_cost_nothing_for_a_pod_without_volumes():
    """No filter is built for a pod without volumes, and no column is computed."""
    snapshot = Snapshot.from_manifests(
        [node("n1"), claim("a", "a"), volume("a"), pod("x", "a", on="n1"), pod("new")], now=NOW
    )
    row, of_pod = snapshot.row("shop/new"), snapshot.pod("shop/new")
    assert row is not None
    assert of_pod is not None
    incoming = Incoming(snapshot=snapshot, pod=of_pod, key="shop/new", row=row)
    built = {
        name: info.build(incoming, info.defaults())
        for name, info in FILTERS.items()
        if name.startswith("volume-")
    }
    assert (built, "claims" in snapshot.pools.by_name) == (
        dict.fromkeys(
            ("volume-restrictions", "volume-limits", "volume-binding", "volume-zone"), None
        ),
        False,
    )


def test_volumes_follow_the_cluster_through_deltas():
    """After pods and claims changed, a decision is that of a snapshot built from nothing."""
    objects = [
        node("n1"),
        node("n2"),
        csi_node("n1", 1),
        csi_node("n2", 1),
        claim("a", "a"),
        claim("b"),
        claim("c", "c"),
        *(volume(n) for n in "abc"),
        pod("first", "a", on="n1"),
        pod("second", "b", on="n2"),
        pod("new", "c", priority=10),
    ]
    changed = [claim("b", "b"), pod("third", "c", on="n2"), pod("first", "b", on="n1")]
    rules = RuleSet.load("kube-1.35")
    snapshot = Snapshot.from_manifests(objects, now=NOW)
    before = decide(snapshot, rules, "shop/new")
    steps = [snapshot]
    for obj in from_dicts(changed):
        name = f"shop/{obj.metadata.name}"
        steps.append(steps[-1].apply([(kind_of(obj), name, obj)]))
        assert isinstance(obj, Pod | PersistentVolumeClaim)
    keyed = {(o["kind"], o["metadata"]["name"]): o for o in [*objects, *changed]}
    fresh = Snapshot.from_manifests(keyed.values(), now=NOW)
    after, expected = decide(steps[-1], rules, "shop/new"), decide(fresh, rules, "shop/new")
    assert (statuses(before), statuses(after), victims(after)) == (
        {"n1": TOO_MANY, "n2": ("Success", "", ())},
        statuses(expected),
        victims(expected),
    )


def test_a_raised_limit_counts_at_once():
    """A CSINode that changes changes the decision; other changes keep what is known of limits."""
    objects = [
        node("n1"),
        csi_node("n1", 1),
        *(claim(n, n) for n in "ab"),
        *(volume(n) for n in "ab"),
        pod("first", "a", on="n1"),
        pod("new", "b"),
    ]
    rules = RuleSet.load("kube-1.35")
    snapshot = Snapshot.from_manifests(objects, now=NOW)
    found = [decide(snapshot, rules, "shop/new").node]
    for change in (pod("idle", on="n1"), csi_node("n1", 2)):
        (obj,) = from_dicts([change])
        key = "n1" if change["kind"] == "CSINode" else "shop/idle"
        snapshot = snapshot.apply([(kind_of(obj), key, obj)])
        found.append(decide(snapshot, rules, "shop/new").node)
    assert found == [None, None, "n1"]
