"""Parts of experiments in virtual time that several kinds share: keys, networks, timelines, layers, traces, bottlenecks."""
