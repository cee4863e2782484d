"""A file deployed on servers: namespaces with a router between them, and `nsenter` in place of ssh."""

from __future__ import annotations

import re
import sys

import child
import pytest
from capabilities import need

need("cc", "torch", "root", "netns")

from test_servers import EACH, ROOT, TOKEN, ranks, servers  # noqa: E402

pytestmark = [pytest.mark.root, pytest.mark.later]
FILE = """
workers = 4
values = 256

[process]
ina = "{ina}"

[[process.switch]]
name = "sums"
listen = "10.3.0.1:5600"
machine = "{machine}"

[[process.host]]
name = "server1"
ip = "10.1.0.1"
ranks = 2

[[process.host]]
name = "server2"
ip = "10.2.0.1"
ranks = 2
"""


def test_a_switch_on_a_server_of_the_file_sums_for_ranks_on_others(tmp_path, monkeypatch):
    monkeypatch.setenv("INA_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with servers(3) as prefixes:
        *hosts, third = prefixes
        path = tmp_path / "sums.toml"
        path.write_text(FILE.format(ina=f"{sys.executable} -m ina.cli", machine=third[2]))  # nsenter -t PID -n

        def deploy(*options, status=0):
            done = child.run([*hosts[0], sys.executable, "-m", "ina.cli", "deploy", path, "--ssh", "nsenter -t {host} -n sh -c",
                              *options], child.TRAINING, cwd=ROOT)
            assert done.returncode == status, done.stdout + done.stderr
            return done.stdout + done.stderr

        try:
            assert "is deployed on sums at 10.3.0.1:5600" in deploy()
            (switch,) = {*re.findall(r"INA_SWITCH=(\S+)", deploy("--hosts"))}
            for status, output, error in ranks(hosts, switch):
                assert status == 0 and '"sums"' in output, error
            assert "good" in deploy("--status")
        finally:
            assert "sums at 10.3.0.1:5600" in deploy("--down")
        assert "nobody listens at 10.3.0.1:5600" in deploy("--status", status=1)
        assert EACH == 2, "as many as the file says"
