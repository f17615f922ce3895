"""What one scheduling cycle decided: the ground room that every other room may import."""
