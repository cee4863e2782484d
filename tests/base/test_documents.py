"""Errors of TOML and JSON files: for any content, the reader names the error and the file."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from capabilities import need

from ina.aggregation.controller.state import StateError, StateFile
from ina.backend.settings import Settings
from ina.base import documents
from ina.base.settings import ConfigError
from ina.lab import plan
from ina.lab.deployment import deployment
from ina.lab.results import record
from ina.lab.virtual import chakra, layers
from ina.p4.bfrt.info import Info
from ina.p4.runtime.entity_error import EntityError
from ina.p4.tools.equal import mapping
from ina.topology import TopologyError
from ina.topology import file as topology
from ina.worlds.testbed.description import Description

pytestmark = pytest.mark.fast
DEEP = 100_000 * "["
LONG = 5000 * "1"
LONG_HEX = "0x" + 5000 * "f"  # of any length for Python, but for printing them
READERS = {
    "experiment.toml": (plan.load, ConfigError), "network.toml": (topology.read, TopologyError),
    "tofino.toml": (deployment, ConfigError), "ina.toml": (lambda path: Settings.read(), ValueError),
    "state.json": (lambda path: StateFile(path).load(), StateError), "groups.json": (chakra._groups, ConfigError),
    "results.json": (record.read_json, record.ResultsError), "network.json": (Description.read, documents.Unreadable),
    "map.toml": (mapping.load, mapping.MappingError),
}


@pytest.mark.parametrize("text", [DEEP, LONG, LONG_HEX, f"[{LONG_HEX}]", b"\xff\xfe", 'a = "', "{"],
                         ids=["deep", "long", "long in hexadecimal", "in a list", "not text", "a string", "a brace"])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_document_is_refused_by_name(name, text, tmp_path: Path, monkeypatch):
    read, refusal = READERS[name]
    path = tmp_path / name
    if isinstance(text, str):
        text = (text if name.endswith("json") or text.startswith("a") else f"name = {text}").encode()
    path.write_bytes(text)
    monkeypatch.setitem(os.environ, "INA_CONFIG", str(path))
    with pytest.raises(refusal, match=rf"{name}:[\d:]* ") as refused:
        read(path)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("data", [DEEP.encode(), LONG.encode(), b"\xff\xfe", b"{"], ids=["deep", "long", "not text", "a brace"])
def test_a_server_that_sends_no_bfrt_json_is_told_so(data):
    for parts in ((data, None), (b"{}", data)):
        with pytest.raises(EntityError, match="^bfrt.json of the (program|fixed tables): ") as refused:
            Info(*parts)
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize(("text", "message"), [
    ("[[0, 1]]", "expected process groups, such as"), ('{"a": 5}', "key 'a': 5: expected a list of ranks"),
    ('{"a": [0], "b": [0, "1"]}', r"key 'b': \[0, '1'\]: expected a list of ranks"), ('{\n"a": [0,\n}', "line 3 column 1"),
])
def test_process_groups_that_are_none_are_refused_by_key_or_line(text, message, tmp_path):
    (tmp_path / "groups.json").write_text(text)
    with pytest.raises(ConfigError, match=rf"groups\.json: .*{message}"):
        chakra._groups(tmp_path / "groups.json")


def test_a_long_value_is_cut_in_a_message(tmp_path):
    (tmp_path / "long.toml").write_text(f'kind = "training"\nworkers = [{"1, " * 10_000}]\n')
    with pytest.raises(ConfigError, match=r"long\.toml:2: workers = \[1, 1, .*\.\.\.: expected a whole number") as refused:
        plan.load(tmp_path / "long.toml")
    assert len(str(refused.value)) < 500


TABLE = b'{"tables": [{"id": %b, "name": %b, "table_type": "x", "key": []}]}'


@pytest.mark.parametrize("wrong", [b"[]", b"5", b'{"tables": 5}', b'{"tables": [[]]}', TABLE % (b"1", b"[]"),
                                   TABLE % (b'"x"', b'"t"'), b'{"learn_filters": [{"name": "d"}]}'])
def test_a_bfrt_json_of_another_kind_is_told_so(wrong):
    with pytest.raises(EntityError, match="bfrt.json of the program: not as BFRuntime defines it"):
        Info(wrong)


@pytest.mark.parametrize("wrong", ["[]", "5", "{}", '{"topology": {}}', '{"topology": {"name": "x", "nodes": [5]}}'])
def test_a_description_of_something_else_is_refused_by_name(wrong, tmp_path: Path):
    path = tmp_path / "network.json"
    path.write_text(wrong)
    with pytest.raises(documents.Unreadable, match=r"network\.json: expected a network"):
        Description.read(path)


@pytest.mark.parametrize("text", [f"{{{DEEP}", f'{{"source": {DEEP}', f'{{"source": {LONG}}}', '{"source": NaN}'])
def test_a_device_configuration_that_is_no_json_is_refused(text):
    need("p4runtime")
    from ina.p4.p4runtime import pipeline

    with pytest.raises(EntityError, match="^p4_device_config is not JSON: ") as refused:
        pipeline._program(text.encode(), {})
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("text", [DEEP, LONG, '{"tables": [{"name": 1, "id": 1}]}', '{"tables": 5}'])
def test_tables_to_verify_that_cannot_be_compared_are_refused(text):
    need("p4runtime")
    from ina.p4.bfrt.messages import bfrt
    from ina.p4.bfrt.service import Server

    device = SimpleNamespace(name="x", program_json=b'{"tables": [{"name": "t", "id": 1}]}')
    with pytest.raises(EntityError, match="^VERIFY: ") as refused:
        Server._verify(device, bfrt.ForwardingPipelineConfig(bfruntime_info=text.encode()))
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("number", ["1e999", "-1e999", "Infinity", "NaN"])
def test_numbers_of_json_are_finite(number):
    with pytest.raises(documents.Unreadable, match="number"):
        documents.json_text(f'{{"last_number": {number}}}')
    assert documents.json_text("[1e300, 1.5, -0.0]") == [1e300, 1.5, 0.0]


def test_an_experiment_is_of_a_kind_that_has_a_name(tmp_path: Path):
    path = tmp_path / "experiment.toml"
    for kind in ("[]", "{ a = 1 }", "5"):
        path.write_text(f"kind = {kind}\n")
        with pytest.raises(ConfigError, match="experiment.toml:1: kind = .*: expected 'allreduce' or 'asynchronous' or"):
            plan.load(path)


@pytest.mark.parametrize("row", [b"a,1,inf,2", b"a,1,nan,2", b'"a\nb",1,1,2', b"a,1,1", b"\xff,1,1,1", b"a,-1,1,1"])
def test_layers_that_cannot_be_read_are_named(row, tmp_path: Path):
    path = tmp_path / "layers.csv"
    path.write_bytes(b"name,elements,forward_ns,backward_ns\n" + row + b"\n")
    with pytest.raises(ConfigError, match=r"layers.csv:( not a text|2: .*expected)"):
        layers.read(path)


@pytest.mark.parametrize(("name", "text"), [
    ("config.json", '{"kind": "Training"}'), ("config.json", '{"kind": []}'), ("config.json", "{}"),
    ("config.json", '{"kind": "training", "workers": "two"}'), ("config.json", '{"kind": "training", "colour": 1}'),
    ("metrics.json", '{"schema": 2, "summary": {}, "comparison": {}, "runs": [], "finished": true}'),
    ("metrics.json", '{"schema": 2, "summary": [], "comparison": {}, "finished": true}'),
])
def test_results_of_something_else_are_refused_by_name(name, text, tmp_path: Path):
    right = {"config.json": '{"kind": "training"}', "environment.json": "{}",
             "metrics.json": '{"schema": 2, "summary": [], "comparison": {}, "runs": [], "finished": true}'}
    for file, content in {**right, name: text}.items():
        (tmp_path / file).write_text(content)
    with pytest.raises(record.ResultsError, match=f"{tmp_path}/{name}: "):
        record.load(tmp_path)
