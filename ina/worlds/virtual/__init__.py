"""Virtual time: networks on an event clock, the explorer, the simulation of restarts."""
