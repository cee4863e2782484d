"""Sums that end in their call: the calling thread hands one to the endpoint, drives its packets and decodes it, with no other
thread and no Python between frames.

So go synchronous collectives of one sum, where nothing before them waits for memory, and where no profiler, trace or flight
recorder is to see their steps. One that takes longer than ``SLICE`` becomes a SwitchWork, as all others are.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

from ina.backend import flight_recorder, spans
from ina.backend.coded import CodecError
from ina.backend.counters import COUNTERS
from ina.backend.group_state import SLICE, GroupState
from ina.backend.sums import Sum
from ina.backend.work import Agreed, Ended, LazyWork, SwitchWork

if TYPE_CHECKING:
    from ina.backend.job import Job


def possible(group: GroupState, options: object) -> bool:
    """Returns True if a collective that is called now may end in its call. ``options``: torch's, of any kind."""
    asynchronous = getattr(options, "asyncOp", True)  # torch before 2.8 has no asyncOp
    return not (asynchronous or group.sums_wait or flight_recorder.recorder is not None or spans.observed())


def run(group: GroupState, job: Job, collective: str, outputs: list[torch.Tensor], part: Sum, agreed: Agreed) -> LazyWork:
    """Sums ``part``, in as many rounds as it takes, unless one of them takes too long. Returns the collective's work, which
    mostly has ended. Raises what encoding, sending or decoding raise; RuntimeError: the job is over."""
    call = None if group.roll_call is None else group.roll_call.begin("the switch", agreed.text)
    COUNTERS.through_switch(collective, [part])
    complete = last = ended = False
    try:
        with torch.no_grad() if part.converts else nullcontext():
            while not ended:
                buffer, complete, last = part.begin(), False, part.last
                seconds = SLICE if part.meanwhile is None else 0.0
                ticket, number, complete = job.submit(buffer, part.average, agreed.mark, seconds, part.reduction, part.route)
                if part.meanwhile is not None:
                    part.meanwhile()
                if not complete:
                    work = SwitchWork(group, job, collective, outputs, [part], agreed, call)
                    work.go_on(ticket, number, last)
                    return work
                ended = part.end()
    except BaseException as error:
        COUNTERS.finished()
        if isinstance(error, Exception) and (not (complete and last) or isinstance(error, CodecError)):
            job.fail(f"{collective} of {part.elements} elements", error)
        raise
    COUNTERS.finished()
    if group.roll_call is not None and call is not None:
        group.roll_call.end(call)
    return Ended(outputs)
