"""Names of collectives in torch's profiler and flight recorder, which are not those of a process group's methods."""

from __future__ import annotations

# By method; the others' names are the same. torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, ProcessGroupNCCL.cpp.
TORCH_NAMES = {
    "allreduce": "all_reduce", "allreduce_own": "all_reduce", "allreduce_coded": "all_reduce", "allreduce_planned": "all_reduce",
    "allgather": "all_gather", "allgather_coalesced": "ALLGATHER_coalesced", "_allgather_base": "_all_gather_base",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "alltoall": "all_to_all", "alltoall_base": "all_to_all", "route_words": "all_to_all", "exchange_words": "all_to_all",
    "gather_single": "gather", "gather_into_tensor": "gather",
}


def torch_name(method: str) -> str:
    """Returns the name that torch's own back ends give to the collective of a process group's method."""
    return TORCH_NAMES.get(method, method)
