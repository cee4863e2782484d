"""P4_16 compiler: program text to a checked tree, to C and P4Info."""
