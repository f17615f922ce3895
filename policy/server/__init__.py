"""The service: the extender that kube-scheduler calls, an API, and pages for people."""
