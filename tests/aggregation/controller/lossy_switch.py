"""`ina` in a process whose switch loses frames, both ways, on the link to its parent."""

from __future__ import annotations

import sys
from functools import partial

from ina.aggregation.controller import embedded
from ina.cli import main
from ina.net.ports import Faults

if __name__ == "__main__":
    embedded.open_worker_port = partial(embedded.open_worker_port, faults=Faults(loss=0.1, duplicate=0.1, seed=3))
    sys.exit(main(sys.argv[1:]))
