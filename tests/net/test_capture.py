"""Captures of the workers of a real job: the results received are the sums of the packets sent."""

from pathlib import Path

import child
import numpy as np
import pytest
from capabilities import need

from ina.lab.training import launch

pytestmark = pytest.mark.build
need("cc", "torch", "scapy")
ROOT = Path(__file__).resolve().parent.parent.parent
WORKERS, COUNT = 3, 5000
RANK = f"""
import json, os, sys
sys.path.insert(0, {str(ROOT)!r})
import numpy as np, torch, torch.distributed as dist
import ina.backend
ina.backend.register()
torch.set_num_threads(1)
dist.init_process_group("ina")
values = np.random.default_rng(dist.get_rank()).integers(-2**31, 2**31, {COUNT}, dtype=np.int64).astype(np.int32)
tensor = torch.from_numpy(values)
dist.all_reduce(tensor)
if dist.get_rank() == 0:
    print(json.dumps(tensor.tolist()), flush=True)
dist.destroy_process_group()
"""


def payloads(path: Path, received: bool) -> dict[int, np.ndarray]:
    """Integers of the data packets of one direction by packet number; repetitions must be the same."""
    from scapy.layers.inet import UDP
    from scapy.utils import PcapReader

    from ina.aggregation.wire.scapy_layers import SwitchML, Values

    packets: dict[int, np.ndarray] = {}
    with PcapReader(str(path)) as frames:
        for frame in frames:
            if Values in frame and (frame[UDP].sport & 0xFFF0 == 0xBEE0) == received:
                values = np.array(frame[Values].v, np.uint64).astype(np.uint32)
                number = frame[SwitchML].tsi
                assert number not in packets or np.array_equal(packets[number], values), f"packet {number} changed"
                packets[number] = values
    return packets


@pytest.mark.later
@pytest.mark.parametrize("faults", ["", "loss=0.05,dup=0.05,seed=2"])
def test_sums_recomputed_from_the_capture(tmp_path, monkeypatch, faults):
    for name, value in {"INA_CAPTURE": str(tmp_path / "pcap"), "INA_VALUES": "64", "INA_FAULT": faults}.items():
        monkeypatch.setenv(name, value)
    messages: list = []
    launch.run(["-c", RANK], WORKERS, tmp_path, "capture", child.TRAINING, messages.append)
    (result,) = messages
    files = sorted((tmp_path / "pcap").glob("*.pcap"))
    assert [path.name[-12:] for path in files] == [f"worker{i}.pcap" for i in range(WORKERS)]
    sent, received = [payloads(path, False) for path in files], [payloads(path, True) for path in files]
    assert set(received[0]) == set(sent[0]) and len(sent[0]) == 1 + -(-COUNT // 64)
    for number in sent[0]:
        total = np.sum([worker[number] for worker in sent], axis=0, dtype=np.uint32)
        for worker in received:
            np.testing.assert_array_equal(worker[number], total)
    blocks = [received[0][number] for number in sorted(received[0])][1:]  # the first is the agreement on the tensor
    np.testing.assert_array_equal(np.concatenate(blocks)[:COUNT].astype(np.int32), result)


@pytest.mark.later
def test_a_folder_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INA_CAPTURE", str(tmp_path / "file" / "pcap"))
    with pytest.raises(launch.JobFailed):
        launch.run(["-c", RANK], 2, tmp_path, "capture", child.TRAINING, lambda message: None)
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))  # whoever fails first, ends the other
    assert f"INA_CAPTURE={tmp_path / 'file' / 'pcap'} cannot be made" in logs and "Not a directory" in logs


def test_a_trace_that_cannot_be_written_is_named(tmp_path):
    from ina.backend.spans import open_trace

    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match="INA_TRACE=.*file/trace.json cannot be written: .*(Not a directory|File exists)"):
        open_trace(str(tmp_path / "file" / "trace.json"), 0)
