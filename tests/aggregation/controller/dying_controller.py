"""``ina ...`` that ends without an error message after its n-th write to a switch or to the state file.

    python -m tests.aggregation.controller.dying_controller N ARGUMENTS...

N = 0: it goes on. It waits only a short time for workers that do not come back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from ina import cli
from ina.aggregation.controller import failures
from ina.aggregation.controller.state import StateFile
from ina.worlds.deployed.remote import Reconnecting

STATUS = 77


def dies_after(function: Callable[..., Any], write: int, counted: list[None]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        done = function(*args)
        counted.append(None)
        if len(counted) == write:
            os._exit(STATUS)
        return done

    return wrapper


if __name__ == "__main__":
    counted: list[None] = []
    for kind, name in ((Reconnecting, "write"), (StateFile, "save")):
        setattr(kind, name, dies_after(getattr(kind, name), int(sys.argv[1]), counted))
    failures.COMING_BACK = 0.2
    sys.exit(cli.main(sys.argv[2:]))
