"""What is kept of imports, changes, decisions, sessions, rule sets and environments."""
