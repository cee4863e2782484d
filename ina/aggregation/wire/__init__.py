"""Wire layouts, derived from the P4 programs: tables, C headers, dissectors, scapy layers."""
