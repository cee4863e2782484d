"""Real interfaces under Mininet, with embedded switches or BMv2."""
