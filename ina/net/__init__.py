"""Ports, faults, network namespaces, and the record of a running network for clean-up."""
