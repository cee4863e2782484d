"""Servers whose own names stand for 127.0.1.1, as Debian writes them into /etc/hosts: ranks find each other all the same."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import child
import pytest
import tiers
from capabilities import need
from test_servers import ROOT, servers

need("cc", "torch", "root", "netns")

pytestmark = [pytest.mark.root, pytest.mark.later]
RANK = """
import json
import torch, torch.distributed as dist
import ina.backend

dist.init_process_group("ina")
rank, size = dist.get_rank(), dist.get_world_size()
values = torch.arange(5000) * (rank + 1)
dist.all_reduce(values)
assert torch.equal(values, torch.arange(5000) * (size * (size + 1) // 2))
names = [None] * size
dist.all_gather_object(names, rank)  # which Gloo does
assert names == list(range(size)), names
print(json.dumps({"sums": ina.backend.stats()["switch"]["sums"]}), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("master", ["10.1.0.1", "localhost"])  # the second one: on the server of rank 0 only
def test_gloo_listens_where_others_reach_it(tmp_path, master):
    tiers.several_processes("runs ranks")
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")
    wrapped = ["unshare", "-m", "sh", "-c", f"mount --bind {hosts} /etc/hosts && exec \"$@\"", "sh", sys.executable, "-c", RANK]
    common = {key: value for key, value in os.environ.items() if key != "GLOO_SOCKET_IFNAME"} | {
        "WORLD_SIZE": "3", "MASTER_PORT": "29500", "INA_TOKEN_FILE": "/nowhere/ina.token"}
    processes = []
    with servers(2) as places:
        try:
            for rank, place in enumerate((places[0], places[1], places[1])):
                environment = common | {"RANK": str(rank), "MASTER_ADDR": "10.1.0.1" if rank else master}
                processes.append(subprocess.Popen([*place, *wrapped], env=environment, cwd=ROOT, text=True,
                                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            outputs = [child.output(process, child.TRAINING) for process in processes]
        finally:
            for process in processes:
                process.kill()
    for process, (out, error) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, error
        assert json.loads(out)["sums"]
