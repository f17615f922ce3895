"""What is kept of decisions, sessions, rule sets and environments."""
