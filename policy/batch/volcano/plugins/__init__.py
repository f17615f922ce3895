"""Volcano's plugins: one file each."""
