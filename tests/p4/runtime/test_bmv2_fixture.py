"""The fixture of BMv2's simple_switch: several at once, and the error of one that does not start."""

import os
import subprocess
from pathlib import Path

import pytest
from bmv2_switch import Bmv2, Bmv2Error, compile_p4
from capabilities import need

need("root", "netns", "bmv2", "p4c")
pytestmark = pytest.mark.hardware
ROOT = Path(__file__).resolve().parent.parent.parent.parent


def test_two_switches_of_one_device_id_run_side_by_side(tmp_path):
    """A build with nanomsg binds a file named after the device id, unless another is given."""
    config = compile_p4(ROOT / "p4" / "patch.p4", tmp_path / "patch.json")
    before = set(os.listdir("/tmp"))
    with Bmv2(config, 2, None) as first, Bmv2(config, 2, None) as second:
        assert first.command("help") and second.command("help") and first.alive and second.alive
        assert "bmv2-0-notifications.ipc" not in set(os.listdir("/tmp")) - before


def test_a_switch_that_does_not_start_is_heard(tmp_path):
    config = tmp_path / "empty.json"
    config.write_text("{}")
    with pytest.raises(Bmv2Error, match=r"did not start with .*empty.json \(exit .*\): ...*"):
        Bmv2(config, 2, None)
    assert subprocess.run(["pgrep", "-f", str(config)], capture_output=True).stdout == b""
