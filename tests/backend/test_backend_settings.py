"""Settings of the torch back end, its options, and its autoload: without ranks."""

from __future__ import annotations

import os
import sys

import child
import pytest
from ranks import ROOT

pytestmark = pytest.mark.build
pytest.importorskip("torch", reason="the back end needs torch")


def test_settings_name_what_is_wrong(monkeypatch):
    from ina.backend.settings import Settings
    from ina.net.faults import parse_faults

    wrong = [
        ("INA_VALUES", "100", "INA_VALUES=100: expected one of 32"),
        ("INA_SLOTS", "many", "INA_SLOTS=many: expected a whole number"),
        ("INA_RATE", "100Gb", "INA_RATE=100Gb: expected a number, in bit/s, such as 10e9"),
        ("INA_SLOTS", "48", "expected a power of two"),
        ("INA_PORT", "serial", "INA_PORT=serial: expected shm, udp or dpdk:DEVICE"),
        ("INA_PROTOCOL", "switchlm", "INA_PROTOCOL=switchlm: expected one of .*switchml"),
        ("INA_CHECK", "maybe", "INA_CHECK=maybe: expected off, sum, keyed"),
        ("INA_FAULT", "loss=2", "INA_FAULT=loss=2: .*loss"),
        ("INA_FAULT", "lost=0.1", "'lost=0.1': expected key=value with one of the keys loss, dup"),
        ("INA_SWITCH", "10.0.0.1", "INA_SWITCH=10.0.0.1: expected .*HOST:PORT .*: the port is missing: such as 10.0.0.1:5588"),
        ("INA_SWITCH", "server1:99999", "INA_SWITCH=server1:99999: expected .*'99999' is no port of 1 to 65535"),
        ("INA_VALEUS", "64", "INA_VALEUS: there is no such variable; did you mean INA_VALUES?"),
    ]
    for name, value, text in wrong:
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(ValueError, match=text):
                Settings.read()
    for name, value in {"INA_VALUES": "many", "INA_SLOTS": "48", "INA_PROTOCOL": "switchlm"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError) as all_at_once:
        Settings.read()
    assert sorted(line.partition(":")[0] for line in str(all_at_once.value).splitlines()) == [
        "INA_PROTOCOL=switchlm", "INA_SLOTS=48", "INA_VALUES=many",
    ]
    faults = parse_faults("loss=0.1,dup=0.2,seed=7")
    assert (faults.loss, faults.duplicate, faults.seed) == (0.1, 0.2, 7)


def test_options_count_more_than_the_environment_and_that_more_than_a_file(monkeypatch, tmp_path):
    from ina.backend.settings import Options, Settings

    file = tmp_path / "ina.toml"
    file.write_text('values = 64\nslots = 8\nport = "udp"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert (Settings.read().values, Settings.read().slots, Settings.read().port) == (64, 8, "udp")
    monkeypatch.setenv("INA_VALUES", "128")
    monkeypatch.setenv("INA_SLOTS", "16")
    settings = Settings.read(Options(slots=32))
    assert (settings.values, settings.slots, settings.port) == (128, 32, "udp")
    assert (Settings.read().check, Settings.read(Options(check="off")).check) == ("", "off")
    with pytest.raises(ValueError, match=r"Options\(slots=33\): expected a power of two"):
        Settings.read(Options(slots=33))


def test_options_that_do_not_exist():
    import inspect

    from ina.backend.settings import Options, Settings

    with pytest.raises(TypeError, match=r"^Options\(value=256\): there is no such option; did you mean 'values'\?$"):
        Options(value=256, slots=4)
    with pytest.raises(TypeError, match=r"^Options\(zzz='a'\): there is no such option; known: protocol, values, "):
        Options(zzz="a")
    with pytest.raises(TypeError, match="positional"):
        Options(*range(20))
    with pytest.raises(ValueError, match=r"^pg_options=\{'values': 256\}: expected ina.backend.Options\(values=256\)$"):
        Settings.read({"values": 256})
    assert [*inspect.signature(Options).parameters] == ["protocol", "values", "slots", "port", "check", "codec"]


@pytest.mark.parametrize(("content", "text"), [
    ("valeus = 64", "ina.toml:1: unknown key .valeus.; did you mean .values.\\?"),
    ("values = 65", "ina.toml:1: values = 65: expected"),
    ("values 64", "configuration file .*ina.toml: "),
])
def test_configuration_file_that_is_wrong(monkeypatch, tmp_path, content, text):
    from ina.backend.settings import Settings

    (tmp_path / "ina.toml").write_text(content)
    monkeypatch.setenv("INA_CONFIG", str(tmp_path / "ina.toml"))
    with pytest.raises(ValueError, match=text):
        Settings.read()
    (tmp_path / "ina.toml").write_text("valeus = 64\n\nslots = '8'\n")
    monkeypatch.setenv("INA_PROTCOL", "atp")
    with pytest.raises(ValueError, match=r"ina.toml:1: unknown key .*\n.*ina.toml:3: slots = '8': expected a .*\nINA_PROTCOL"):
        Settings.read()
    monkeypatch.setenv("INA_CONFIG", str(tmp_path / "other.toml"))
    with pytest.raises(ValueError, match="other.toml"):
        Settings.read()


def test_autoload_is_cheap_and_never_raises():
    code = """
import sys, torch
import ina.backend.autoload as autoload
autoload.register(); autoload.register()
assert torch.distributed.Backend.INA == "ina" and torch.distributed.Backend.backend_list.count("ina") == 1
heavy = {"ina._native", "ina.backend.process_group", "ina.p4.compiler", "numpy.testing"} & set(sys.modules)
assert not heavy, heavy
torch.distributed.Backend.backend_list.remove("ina")
torch.distributed.Backend.register_backend = None
autoload.register()
"""
    result = child.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=str(ROOT)))
    assert result.returncode == 0, result.stderr
    assert "cannot register" in result.stderr
