"""Pod groups of kube-scheduler 1.36: placed together, preempting as one (KEP-4671, KEP-5710).

`decide_group` is one cycle of a group: a pure function of snapshot, rule set, group and seed.
"""
