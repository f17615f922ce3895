"""Preemptions that a real scheduler made, found in what its API server shows of them.

Pure: changed pods and Event objects in, preemptions with their evidence out. Source: what
kube-scheduler 1.13 to 1.36 writes when it preempts.
"""
