"""Aggregation: protocols and their table entries, the wire, workers, parameter servers, the controller."""
