"""Every number from outside has a largest value: a request for more than a machine holds is refused before it is tried."""

import argparse
import inspect
import math
import re
import sys

import child
import pytest

from ina import cli
from ina import topology as topologies
from ina.base.bounds import real, whole
from ina.base.settings import ConfigError, keys
from ina.lab.kind import kinds
from ina.lab.kinds.training import Training, from_environment
from ina.topology import TopologyError
from ina.topology.routes import tables
from ina.topology.topology import MOST_LINKS, Link, Node, Topology

HUGE = 10**9
KINDS = kinds()
NUMBERS = [(kind, key.name, key.type.__name__) for kind, class_ in KINDS.items() for key in keys(class_).values()
           if key.type in (int, float)]


def commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()):
    """Every option of every command, with the command's words."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from commands(below, (*words, name))
        else:
            yield words, action


@pytest.mark.fast
@pytest.mark.parametrize(("kind", "key", "type_"), NUMBERS)
def test_every_number_of_an_experiment_is_bounded(kind, key, type_, tmp_path):
    (tmp_path / "one.0.et").touch()
    required = {"trace": str(tmp_path / "one")} if kind == "trace" else {}
    bounds = keys(KINDS[kind])[key].range
    assert bounds is not None
    low, high = bounds.low, bounds.high
    assert math.isfinite(low) and math.isfinite(high)
    for value in (high + 1 if type_ == "int" else high * 2 + 1, low - 1, math.nan if type_ == "float" else high + 2):
        with pytest.raises(ConfigError, match=rf"{key} = .*: expected "):
            KINDS[kind](**required, **{key: value})


@pytest.mark.fast
def test_a_bound_says_why():
    with pytest.raises(ConfigError, match=r"^jobs = 1000000000: expected 1 to 64 \(each has hosts or slots of its own\)$"):
        KINDS["allreduce"](jobs=HUGE)


@pytest.mark.fast
@pytest.mark.parametrize("text", ["-1", "many", "9" * 5000, "\N{ARABIC-INDIC DIGIT FOUR}"])
def test_numbers_of_the_environment(text, monkeypatch):
    monkeypatch.setenv("INA_SLOTS", text)
    with pytest.raises(ConfigError, match="INA_SLOTS = '.*: expected a number up to 999999999"):
        from_environment("INA_SLOTS", 64)
    monkeypatch.setenv("INA_SLOTS", str(HUGE - 1))
    with pytest.raises(ConfigError, match="slots = 999999999: expected"):
        Training()


@pytest.mark.fast
def test_every_number_of_the_command_line_is_bounded():
    """Topologies check their own numbers; their errors name the quantity."""
    import ina.worlds.dpdk.switch
    import ina.worlds.dpdk.worker

    parsers = [cli.parser(), ina.worlds.dpdk.switch.parser(), ina.worlds.dpdk.worker.parser()]
    actions = [(words, action) for parser in parsers for words, action in commands(parser)]
    assert len(actions) > 200
    for words, action in actions:
        if words[:2] not in (("topo", "show"), ("net", "up")) or action.dest == "values":
            assert action.type not in (int, float), f"{' '.join(words)} {action.option_strings}: no bounds"


@pytest.mark.fast
@pytest.mark.parametrize(("parse", "text", "message"), [
    (whole(1, 64, "each is a tree"), "1000000000", r"1000000000: expected 1 to 64 \(each is a tree\)"),
    (whole(1, 64), "0", "0: expected 1 to 64"),
    (whole(1, 64), "4.0", "'4.0': expected a whole number from 1 to 64"),
    (whole(1, 10**30), "9" * 5000, "'9{40}': expected a whole number from 1 to"),
    (real(0, 1e6), "nan", "nan: expected 0 to 1e[+]06"),
    (real(0, 1e6), "inf", "inf: expected 0 to 1e[+]06"),
    (real(0, 1e6), "soon", "'soon': expected a number from 0 to 1e[+]06"),
])
def test_what_the_command_line_says(parse, text, message):
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{message}"):
        parse(text)


@pytest.mark.build
@pytest.mark.parametrize(("name", "given", "message"), [
    ("star", {"hosts": HUGE}, r"star: the number of hosts is 1,000,000,000, expected 1 to 9,999: names go from h1 to h9999"),
    ("star", {"hosts": 0}, r"star: the number of hosts is 0, expected 1 to 9,999"),
    ("star", {"hosts": -1}, r"star: the number of hosts is -1, expected 1 to 9,999"),
    ("leaf-spine", {"hosts": HUGE}, "leaf-spine: the number of hosts is 4,000,000,000, expected"),
    ("leaf-spine", {"leaves": HUGE}, "leaf-spine: the number of hosts is 4,000,000,000, expected"),
    ("leaf-spine", {"spines": HUGE}, "leaf-spine: the number of switches is 1,000,000,004, expected"),
    ("leaf-spine", {"leaves": 2000, "spines": 2000}, "leaf-spine: the number of links is 4,008,000, expected 1 to 65,536: each"),
    ("fat-tree", {"k": HUGE}, "fat-tree: k is 1000000000, expected an even number from 2 to 34"),
    ("topoopt", {"servers": HUGE}, "topoopt: servers is 1,000,000,000, expected 2 to 1,024: there is a route from each to each"),
    ("topoopt", {"degree": HUGE}, "topoopt: degree is 1,000,000,000, expected 0 to 1,024"),
    ("star", {"queue": 1 << 40}, "queue is 1099511627776, expected bytes from 0"),
    ("star", {"rate": math.inf}, "rate is inf, expected bit/s"),
    ("star", {"mtu": HUGE}, "mtu is 1000000000, expected 576 to 9000"),
])
def test_a_topology_that_no_machine_holds(name, given, message):
    """The limits are 2 GiB of address space and two minutes of processor time; it uses far less."""
    words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
    limits = "setrlimit(RLIMIT_AS, (2 << 30, 2 << 30)); setrlimit(RLIMIT_CPU, (120, 120))"
    code = f"from resource import *; {limits}; import sys; from ina import cli; sys.exit(cli.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "topo", "show", name, *words]
    done = child.run(command, child.TRAINING)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr[-2000:]
    assert re.search(message, done.stderr), done.stderr


@pytest.mark.fast
def test_every_size_of_a_topology_is_tried_above():
    marks = test_a_topology_that_no_machine_holds.pytestmark[0].args[1]
    tried = {(name, key) for name, options, _ in marks for key in options}
    sizes = {(name, key) for name in topologies.names() for key in ("hosts", "leaves", "spines", "k", "servers", "degree")
             if key in inspect.signature(topologies.maker(name)).parameters}
    assert sizes <= tried


@pytest.mark.fast
def test_a_file_of_a_topology_is_bounded(tmp_path):
    path = tmp_path / "large.toml"
    path.write_text('[[link]]\nends = ["s1-s9999", "s1-s9999"]\n')
    with pytest.raises(TopologyError, match=r"large.toml:2: large.toml: the number of links is 99,980,001, expected 1 to 65,536"):
        topologies.load(str(path))


@pytest.mark.fast
def test_links_and_routes_of_any_network_are_bounded():
    with pytest.raises(TopologyError, match="many: the number of links is 65,537, expected 1 to 65,536"):
        Topology("many", (Node("h1"), Node("s1")), (Link("h1", "s1"),) * (MOST_LINKS + 1))
    wide = topologies.load("leaf-spine", leaves=4999, spines=1, hosts=2)
    with pytest.raises(TopologyError, match="hosts times switches is 49,990,000, expected 1 to 16,777,216: each switch has"):
        tables(wide)
