"""Sums that end in their call: the calling thread hands one to the endpoint, drives its packets and decodes it, with no other
thread and no Python between frames.

So go collectives of one sum, where nothing before them waits for memory, and where no profiler, trace or flight recorder is to
see their steps. One that is asynchronous, or takes longer than ``SLICE``, becomes a SwitchWork as soon as it has begun, as all
others are from their beginning.
"""

from __future__ import annotations

import time
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


def possible(group: GroupState) -> bool:
    """Returns True if a sum that is called now may begin at once."""
    return not (group.sums_wait or flight_recorder.recorder is not None or spans.observed())


def run(group: GroupState, job: Job, collective: str, outputs: list[torch.Tensor], part: Sum, agreed: Agreed,
        asynchronous: bool) -> LazyWork:
    """Sums ``part``, in as many rounds as it takes, unless one of them takes too long; if ``asynchronous``, only begins it.
    Returns the collective's work, which mostly has ended. Raises what encoding, sending or decoding raise; RuntimeError: the
    job is over."""
    call = None if group.roll_call is None else group.roll_call.begin("the switch", agreed.text)
    began = time.monotonic()
    complete = last = ended = False
    try:
        with torch.no_grad() if part.converts else nullcontext():
            while not ended:
                buffer, complete, last = part.begin(), False, part.last
                seconds = 0.0 if asynchronous or part.meanwhile is not None else SLICE
                ticket, number, complete = job.run(buffer, part.average, agreed.mark, seconds, part.reduction, part.route)
                if part.meanwhile is not None:
                    part.meanwhile()
                if not complete:
                    break
                ended = part.end()
    except BaseException as error:
        COUNTERS.ended(collective, part, began)
        if isinstance(error, Exception) and (not (complete and last) or isinstance(error, CodecError)):
            job.fail(f"{collective} of {part.elements} elements", error)
        raise
    if not ended:
        COUNTERS.through_switch(collective, [part])
        work = SwitchWork(group, job, collective, outputs, [part], agreed, call)
        work.go_on(ticket, number, last)
        return work
    COUNTERS.ended(collective, part, began)
    if group.roll_call is not None and call is not None:
        group.roll_call.end(call)
    return Ended(outputs)
