"""A cluster on one machine: hosts in network namespaces of their own, each behind a NIC of a chosen bandwidth."""
