"""Volcano's actions: one file each."""
