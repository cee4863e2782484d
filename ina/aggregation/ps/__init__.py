"""Parameter servers: one without I/O, and many of them on one port."""
