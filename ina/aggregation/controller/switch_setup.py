"""Setup of a switch for its protocol: pipes, loopback ports, and entries that do not depend on jobs."""

from __future__ import annotations

from typing import Any

from ina.aggregation.entries import JobProgram
from ina.p4.runtime.embedded import Switch
from ina.p4.runtime.loaded_program import Program


def make_switch(loaded: Program, program: JobProgram | None, **options: Any) -> Switch:
    """Makes a switch, not started. ``options``: Switch's. ``program``: None for no protocol. Raises what loading and writing
    raise."""
    if program is None:
        return Switch(loaded, **options)
    switch = Switch(loaded, pipes=program.pipes, **options)
    try:
        for number in program.loopback:
            switch.add_port(number, loopback=True)
        if updates := program.setup():
            switch.write(updates)
    except BaseException:
        switch.close()
        raise
    return switch
