"""P4Info: made, written and read."""
