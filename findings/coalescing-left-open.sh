#!/bin/sh
# torch 2.13.0: an error as torch.distributed's _coalescing_manager is entered, or inside of it, leaves the group collecting.
# The manager notes that the group collects its collectives, then asks the back end to begin, and forgets the note only at its regular
# end; it is a context manager without `finally`. Gloo cannot begin for a device, and says so with an error. A program that catches it,
# to go on with one collective at a time, then trains on gradients that nobody has summed:
#
#   all_reduce of ones by two ranks                        result    later calls
#   as it should be                                        2         2
#   after _coalescing_manager(device="cpu") over Gloo      1         1; returns None, and nothing is raised
#   after an error inside _coalescing_manager()            1         1; likewise
#
# With async_op the call returns a work that may not be waited for: that one raises ValueError. After
# `distributed_c10d._world.pg_coalesce_state.pop(group)` sums are right again. Every back end has this, as none of them hears of the
# calls. Found by reading the manager for what a back end has to do.
#
# Takes the packages from the registry, in a folder that is removed; needs Python 3.11. All traffic stays on this machine. Ends with
# status 1 if a result is another than above.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 numpy
cat > "$folder/coalescing.py" <<'PYTHON'
import multiprocessing
import socket
from datetime import timedelta

WAIT = timedelta(seconds=120)


def rank(number, port, results):
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", port, 2, number == 0, WAIT), rank=number, world_size=2,
                            timeout=WAIT)
    group, rows = c10d._get_default_group(), []

    def summed():
        ones = torch.ones(1)
        returned = dist.all_reduce(ones)
        return int(ones), "None" if returned is None else type(returned).__name__

    def of(action):
        try:
            action()
        except Exception as error:
            return type(error).__name__
        return "nothing"

    def entered():
        with c10d._coalescing_manager(group, torch.device("cpu")):
            pass

    def left():
        with c10d._coalescing_manager(group):
            raise KeyError

    def waited():
        dist.all_reduce(torch.ones(1), async_op=True).wait()

    rows.append(("at first", "", *summed()))
    for name, action in (("error on entry", entered), ("error inside", left)):
        raised = of(action)
        rows += [(name, raised, *summed()) for _ in range(3)]
        rows.append((f"{name}, async_op", of(waited), 0, ""))
        rows.append((f"{name}, collected", "", len(c10d._world.pg_coalesce_state.pop(group)), ""))
        rows.append((f"{name}, after pop", "", *summed()))
    if number == 0:
        results.put((torch.__version__, rows))
    dist.barrier()
    dist.destroy_process_group()


def expected(name, raised):
    return [*[(name, raised, 1, "None")] * 3, (f"{name}, async_op", "ValueError", 0, ""), (f"{name}, collected", "", 4, ""),
            (f"{name}, after pop", "", 2, "None")]


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=rank, args=(number, port, results)) for number in range(2)]
    for process in ranks:
        process.start()
    version, rows = results.get(timeout=300)
    for process in ranks:
        process.join(60)
    print(f"torch {version}")
    for name, raised, number, returned in rows:
        print(f"{name:28} {raised:14} {number} {returned}")
    right = [("at first", "", 2, "None"), *expected("error on entry", "RuntimeError"), *expected("error inside", "KeyError")]
    raise SystemExit(rows != right)
PYTHON
TORCH_DEVICE_BACKEND_AUTOLOAD=0 "$folder/venv/bin/python" "$folder/coalescing.py"
