"""A P4 switch: compiler, runtime, its control planes, and tools for people who write P4. It knows nothing of aggregation."""
