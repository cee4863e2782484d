"""Parts of experiments by processes in real time: their start, one worker, the testbed's network and the hosts in it."""
