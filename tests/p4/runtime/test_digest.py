"""Same seed, same bytes on every machine: digests of runs compared with those stored here.

A digest covers every arrival's time, place and bytes. A different one shows a change of frames or times: of a protocol, a
program, the emulator. If that is intended, the test prints the value to store.
"""

import pytest
from capabilities import need

from ina.lab.kinds import allreduce
from ina.lab.kinds.allreduce import AllReduce

pytestmark = pytest.mark.build
FAULTY = {"loss": 0.01, "duplicate": 0.01, "reorder": 0.01, "rto_min": 50e-6, "elements": 20_000, "values": 32, "pool": 64}
STORED = {
    "switchml, star": ({}, 0x6b38c52dce133d74),
    "switchml, fat-tree, two jobs": ({"topology": "fat-tree k=4", "jobs": 2}, 0x43280169aa6abfd3),
    "switchml, topoopt, four trees": ({"topology": "topoopt servers=8 degree=4", "stripes": 4}, 0x10c8e96ba2046bcd),
    "ring, fat-tree": ({"topology": "fat-tree k=4", "algorithm": "ring", "stripes": 2}, 0x8306486395ce2745),
    "parameter server, dctcp": ({"algorithm": "parameter-server", "transport": "dctcp", "ecn": 20_000}, 0x5c142cee0f53cf0f),
}


@pytest.mark.parametrize("name", STORED)
def test_a_stored_digest_comes_out_again(name):
    need("cc")
    keys, stored = STORED[name]
    runs = allreduce.reduce(AllReduce(**{"workers": 8, **FAULTY, **keys}))
    digest = runs[0].stats["network"]["digest"]
    assert digest == stored, f"{name}: what is sent, or when, has changed; if it was meant to, store {digest:#018x}"
