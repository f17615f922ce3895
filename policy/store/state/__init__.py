"""Cluster state: the versions of every object, and how they are read."""
