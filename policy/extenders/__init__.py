"""HTTP extenders: services that a rule set lets have a say, asked as kube-scheduler asks them."""
