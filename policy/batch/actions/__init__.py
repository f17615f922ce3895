"""Actions: one file each."""
