#!/bin/sh
# Gloo in torch 2.13.0: process groups that do nothing cost processor time, each as much as the first. A job makes many of them (a mesh
# of data, tensor and pipeline parallel ranks, a group for each expert), and one would guess that a group in which nothing happens
# sleeps. But torch gives each group a device of its own, and a device is a thread that wakes up a hundred times a second for ever:
#
#   groups                                         wake-ups of a rank in a second, doing nothing
#   1                                              100
#   64, by new_group                               6,400
#   64, with one device made beforehand            100
#
# On an AMD EPYC core 64 groups take 5 to 9 % of it, in each rank, and a sum of 4 bytes takes longer the more groups there are. The
# remedy is to give all groups the same device, in ProcessGroupGloo's options; new_group has no way to do so.
#
# Takes the packages from the registry, in a folder that is removed; needs Python 3.11. All traffic stays on this machine. Ends with
# status 1 if a result is another than above, by more than a third.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 numpy
cat > "$folder/idle.py" <<'PYTHON'
import multiprocessing
import os
import time
from datetime import timedelta

GROUPS, SECONDS, WAIT = 64, 3, timedelta(seconds=60)


def wake_ups():
    total = 0
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as lines:
            total += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return total


def rank(number, port, way, results):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, 2, number == 0, WAIT)
    groups = []
    if way == "shared":
        device = dist.ProcessGroupGloo.create_default_device()
        for i in range(GROUPS):
            options = dist.ProcessGroupGloo._Options()
            options._devices, options._timeout, options._threads = [device], WAIT, 2
            groups.append(dist.ProcessGroupGloo(dist.PrefixStore(str(i), store), number, 2, options))
        wait = groups[0].barrier().wait
    else:
        dist.init_process_group("gloo", store=store, rank=number, world_size=2, timeout=WAIT)
        groups += [dist.new_group(backend="gloo") for _ in range(way - 1)]
        wait = dist.barrier
    wait()
    before, processor = wake_ups(), time.process_time()
    time.sleep(SECONDS)
    each = (wake_ups() - before) / SECONDS, (time.process_time() - processor) / SECONDS
    if number == 0:
        results.put(each)
    time.sleep(1)


if __name__ == "__main__":
    import socket

    context, wrong = multiprocessing.get_context("spawn"), 0
    for way, expected in ((1, 100), (GROUPS, 100 * GROUPS), ("shared", 100)):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        results = context.Queue()
        ranks = [context.Process(target=rank, args=(number, port, way, results)) for number in range(2)]
        for process in ranks:
            process.start()
        woken, processor = results.get(timeout=120)
        for process in ranks:
            process.join(60)
        wrong += not 2 / 3 * expected < woken < 4 / 3 * expected
        name = f"{GROUPS} with one device" if way == "shared" else f"{way} by new_group"
        print(f"groups: {name:20}  wake-ups in a second: {woken:6.0f}  processor: {100 * processor:.1f} %", flush=True)
    raise SystemExit(min(wrong, 1))
PYTHON
TORCH_DEVICE_BACKEND_AUTOLOAD=0 "$folder/venv/bin/python" "$folder/idle.py"
