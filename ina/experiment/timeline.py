"""A training's timeline in Chrome's trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

One process a job, one thread a worker; what overlaps, such as all-reduces and the backward pass, are asynchronous spans. Links
that were sampled are counters of a process of their own: use, and packets waiting.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ina.experiment.record import Training

US = 1e6


def write(path: Path, trainings: Sequence[Training]) -> None:
    """Times in us of virtual time."""
    events: list[dict] = []
    for pid, training in enumerate(trainings, start=1):
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": training.job}})
        for tid, spans in enumerate(training.spans):
            events.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": f"worker {tid}"}})
            for number, (name, begin, end) in enumerate(spans):
                common = {"pid": pid, "tid": tid, "name": name}
                if name.startswith("all-reduce"):
                    mark = {**common, "cat": "all-reduce", "id": f"{pid}.{tid}.{number}"}
                    events += [{**mark, "ph": "b", "ts": US * begin}, {**mark, "ph": "e", "ts": US * end}]
                else:
                    events.append({**common, "cat": "compute", "ph": "X", "ts": US * begin, "dur": US * (end - begin)})
    if trainings and trainings[0].links:
        pid = len(trainings) + 1
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": "links"}})
        for name, samples in trainings[0].links.items():
            begin = 0.0
            for end, use, waiting in samples:  # a counter's value holds until its next one
                for what, value in (("use", use), ("packets waiting", waiting)):
                    shown = {"name": f"{name} {what}", "args": {what: round(value, 4)}}
                    events.append({"ph": "C", "pid": pid, "ts": US * begin, **shown})
                begin = end
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))
