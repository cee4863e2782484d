"""Sizes of packets, apart from lane.py since the wire's headers are made before there is a compiled part."""

VALUES = (32, 64, 128, 256, 1024, 2048)  # of a packet, of any lane: those that have size codes (p4/include/size.p4)
