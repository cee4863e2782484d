"""Entry point of the group ``torch.backends``: torch calls it at the end of every ``import torch``.

So it is cheap (it only notes a name and a function; the back end is imported when a group is made) and never raises: a
torch that cannot be extended must still import. If the back end is missing, standard error has the reason.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.distributed_c10d import _DistributedBackendOptions


def register() -> None:
    """Registers ``"ina"`` in torch.distributed, as an installed package does when torch is imported. A second time does nothing;
    errors are printed, not raised."""
    try:
        import torch.distributed as dist

        if dist.is_available() and "ina" not in dist.Backend.backend_list:
            dist.Backend.register_backend("ina", create, extended_api=True, devices=["cpu", "cuda"])
    except Exception as error:
        print(f"ina: cannot register the torch.distributed back end 'ina': {error!r}", file=sys.stderr)


def create(options: _DistributedBackendOptions, backend_options: object) -> ProcessGroup:
    """Creator that torch calls for each new group, on its members only."""
    from ina.base.garbage import uncollected

    with uncollected():  # new modules start the collector, which takes 0.1 s to walk through all of torch's objects
        from ina.backend import rendezvous
    with rendezvous.prepared(options.group_rank, options.group_size, backend_options):
        with uncollected():
            from ina.backend.process_group import create_process_group
        return create_process_group(options, backend_options)
