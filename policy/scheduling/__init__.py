"""From a decision to the next one: effects on the cluster, the order of pods, the cycle."""
