"""`ina cluster check`: measures the network between a few servers, and says what a switch process on one of them can win."""
