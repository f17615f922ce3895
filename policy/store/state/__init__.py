"""Cluster state: the versions of every object, how they come in, and how they are read."""
