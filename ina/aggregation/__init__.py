"""Aggregation: protocols and their table entries, the wire, codecs, workers, parameter servers, the controller."""
