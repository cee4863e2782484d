"""The calendar of virtual time (ina/worlds/virtual/c/events.c): the order is that of a list for any times, and nothing
leaks."""

import subprocess

import child
import pytest
from capabilities import need

from ina.base import manifest
from ina.base.paths import root

pytestmark = pytest.mark.build
INCLUDES = [f"-I{root() / folder}" for folder in (".", *manifest.FOLDERS)]


@pytest.fixture(scope="module")
def calendar(tmp_path_factory):
    need("cc", "sanitizers")
    built = tmp_path_factory.mktemp("calendar") / "calendar"
    sources = [str(root() / "tests/c/calendar.c"), str(root() / "ina/worlds/virtual/c/events.c")]
    subprocess.run(["cc", "-O1", "-g", "-std=gnu11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *INCLUDES,
                    *sources, "-o", str(built)], check=True)
    return built


@pytest.mark.parametrize("seed", range(6))
def test_order_is_that_of_a_list(calendar, seed):
    process = child.run([calendar, str(seed), "60000"])
    assert (process.returncode, process.stderr) == (0, "")
