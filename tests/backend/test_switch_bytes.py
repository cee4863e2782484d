"""Words and bytes of collectives through the switch (``stats()["switch"]``): those that travelled, whatever a tensor's dtype."""

from __future__ import annotations

import pytest
from ranks import run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

COUNT, VALUES = 120_000, 256
WORDS = {  # of COUNT values, of two ranks: ina/backend/sums.py
    "float32": COUNT, "float16": COUNT, "bfloat16": COUNT, "complex64": 2 * COUNT, "int32": COUNT, "int64": 3 * COUNT,
    "int16": 2 * COUNT // 3, "int8": COUNT // 3, "uint8": COUNT // 3, "bool": COUNT // 16}


def test_bytes_are_those_that_travelled(tmp_path):
    reports = succeed(run(tmp_path, 2, f"""
start()
counts = {{}}
for name in {list(WORDS)}:
    tensor = torch.ones({COUNT}).to(getattr(torch, name))
    dist.all_reduce(tensor)
    ina.backend.reset_stats()
    dist.all_reduce(tensor)
    stats = ina.backend.stats()
    counts[name] = [stats["switch"]["elements"], stats["switch"]["bytes"], stats["worker"]["tx_packets"], stats["reasons"]]
say(counts=counts)
dist.destroy_process_group()
""", INA_VALUES=str(VALUES), INA_CODEC="block"))
    for report in reports:
        for name, words in WORDS.items():
            elements, size, packets, reasons = report["counts"][name]
            assert (elements, size, reasons) == (words, 4 * words, {}), name
            assert packets >= words // VALUES, name
