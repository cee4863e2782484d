"""The container of examples/servers, as far as its text says: no container engine is needed here."""

from __future__ import annotations

import fnmatch
import json
import re
import sys
from pathlib import Path

import child
import pytest
from capabilities import need
from control_process import free_tcp_name
from listening_switch import listening
from waiting import LONG

from ina import __version__
from ina.cli import parser

FILE = Path(__file__).resolve().parent.parent.parent / "examples/servers/Containerfile"


def stages() -> list[list[tuple[str, str]]]:
    """Instructions and their arguments, by stage."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.M).replace("\\\n", "")
    instructions = [line.split(maxsplit=1) for line in text.splitlines() if line]
    starts = [n for n, (name, _) in enumerate(instructions) if name == "FROM"]
    assert starts[0] == 0
    return [[tuple(each) for each in instructions[a:b]] for a, b in zip(starts, [*starts[1:], None], strict=True)]


def arguments(name: str, stage: int = -1) -> list[str]:
    return [text for instruction, text in stages()[stage] if instruction == name]


def words(name: str) -> list[str]:
    """The one command of the last stage, in the form without a shell."""
    (text,) = arguments(name)
    return json.loads(text[text.index("["):].removeprefix("CMD "))


@pytest.mark.fast
def test_the_base_is_of_one_version_without_a_registry():
    bases = [stage[0][1] for stage in stages()]
    assert len(bases) == 2 and bases[0] == f"{bases[1]} AS build"
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", bases[1]) and not re.search(r"https?://(?!127\.)", FILE.read_text())


@pytest.mark.fast
def test_what_is_copied_is_there():
    (wheel,) = arguments("COPY", 0)
    assert fnmatch.fnmatch(f"ina-{__version__}-cp311-abi3-manylinux_2_34_x86_64.whl", wheel.split()[0])
    (copied,) = arguments("COPY")
    origin, source, target = copied.split()
    assert (origin, source) == ("--from=build", target) and f"-m venv {source} " in arguments("RUN", 0)[0]
    assert {words(name)[0].rpartition("/bin/")[0] for name in ("ENTRYPOINT", "HEALTHCHECK")} == {target}


@pytest.mark.fast
def test_nothing_of_it_runs_as_root_and_it_may_write_where_it_keeps_things():
    order = [name for name, _ in stages()[-1]]
    assert arguments("USER") == ["ina"] and "RUN" not in order[order.index("USER"):] and "useradd --system" in arguments("RUN")[0]
    volumes = json.loads(arguments("VOLUME")[0])
    assert all(re.search(rf"install -d -o ina .*{volume}\b", arguments("RUN")[0]) for volume in volumes)
    places = dict(each.split("=") for each in arguments("ENV")[0].split())
    assert sorted(places) == ["INA_CACHE", "INA_TOKEN_FILE"]
    assert all(any(place.startswith(volume) for volume in volumes) for place in places.values())


@pytest.mark.fast
def test_the_command_line_is_one_of_ina():
    line = [*words("ENTRYPOINT")[1:], *words("CMD")]
    args = parser(line).parse_args(line)
    assert (args.listen, args.metrics, args.log) == ("eth0", "9560", "json") and args.program is None
    line = [*words("ENTRYPOINT")[1:], "10.0.0.9", "atp", "-D", "VALUES=64"]
    assert parser(line).parse_args(line).program.name == "atp.p4", "what follows the image's name takes the place of CMD"


@pytest.mark.build
@pytest.mark.gate
def test_the_health_check_fails_without_a_switch_process():
    need("cc")
    _, *check = words("HEALTHCHECK")
    assert ":9560/" in check[-1]
    port = free_tcp_name().rpartition(":")[2]
    check[-1] = check[-1].replace("9560", port).replace("timeout=5", f"timeout={LONG}")  # a busy machine is no verdict
    with listening("--metrics", port):
        assert child.run([sys.executable, *check]).returncode == 0
    assert child.run([sys.executable, *check]).returncode == 1
