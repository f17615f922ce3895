"""Pages for people: rendered by the server, without a request to anywhere else."""
