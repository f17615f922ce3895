"""Plugins: one file each."""
