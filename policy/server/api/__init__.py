"""The REST API: one table of operations, from which routes and the OpenAPI document are made."""
