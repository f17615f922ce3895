"""Filters: does a pod fit a node? One file per filter, all of them on columns."""
