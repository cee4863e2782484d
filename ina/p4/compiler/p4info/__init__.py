"""P4Info: building and writing it."""
