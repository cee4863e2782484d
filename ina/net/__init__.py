"""Ports, faults, network namespaces, and what a running network has left behind."""
