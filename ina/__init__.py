"""In-network aggregation: switch programs, emulator, hosts and torch backend."""
