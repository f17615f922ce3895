"""The extender: what kube-scheduler sends, who judges it, and what it is answered."""
