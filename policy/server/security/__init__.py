"""Who may do what: tokens, roles, namespaces, sessions."""
