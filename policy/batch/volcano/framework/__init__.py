"""What Volcano's actions and plugins work with: the session, its state, and how answers combine."""
