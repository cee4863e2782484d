"""Paths of workers in a tree of switch processes."""

from __future__ import annotations

import pytest

from ina.aggregation.control_socket.tree_paths import ID, Share, new_id, share

pytestmark = pytest.mark.fast
ROOT, ONE, TWO, THREE = (digit * 12 for digit in "0abc")
PATHS = [ROOT, f"{ONE}/{ROOT}", f"{THREE}/{TWO}/{ROOT}", f"{ONE}/{ROOT}", f"{TWO}/{ROOT}", f"{THREE}/{TWO}/{ROOT}"]


def test_an_id_is_new_each_time():
    assert len({new_id() for _ in range(100)}) == 100 and ID.fullmatch(new_id())


@pytest.mark.parametrize(("own", "expected"), [
    ([ROOT], Share((0, ONE, TWO), {ONE: (1, 3), TWO: (2, 4, 5)}, (0, 1, 2, 3, 4, 5), True)),
    ([ONE, ROOT], Share((1, 3), {}, (1, 3), False)),
    ([TWO, ROOT], Share((THREE, 4), {THREE: (2, 5)}, (2, 4, 5), False)),
    ([THREE, TWO, ROOT], Share((2, 5), {}, (2, 5), False)),
])
def test_each_switch_process_knows_its_children_and_their_workers(own, expected):
    assert share(PATHS, 6, own) == expected


def test_where_all_workers_are_below_the_job_is_whole():
    assert share([f"{ONE}/{ROOT}"] * 2, 2, [ONE, ROOT]).whole
    assert share([f"{THREE}/{TWO}/{ROOT}", f"{TWO}/{ROOT}"], 2, [TWO, ROOT]).whole


@pytest.mark.parametrize(("paths", "own", "words"), [
    ([ROOT], [ROOT], "1 paths of 2 workers"),
    ([ROOT, ""], [ROOT], "worker 1 is ''; expected ids"),
    ([ROOT, ROOT[1:]], [ROOT], "expected ids of 12 hexadecimal digits"),
    ([ROOT, f"{ROOT}/{ROOT}"], [ROOT], "goes through a switch process twice"),
    ([ROOT, "/".join([f"{digit}" * 12 for digit in "1234"] + [ROOT])], [ROOT], "has 5 switch processes above each other"),
    ([ROOT, ONE], [ROOT], f"worker 1 end at {ONE}, those here at {ROOT}"),
    ([ROOT, f"{TWO}/{ROOT}"], [ONE, ROOT], f"no worker's path goes through this switch process, {ONE}"),
    ([f"{THREE}/{ONE}/{ROOT}", ROOT], [THREE, TWO, ROOT], f"{THREE}/{ONE}/{ROOT}, but those above {THREE} are {TWO}/{ROOT}"),
])
def test_paths_of_no_tree_are_refused(paths, own, words):
    with pytest.raises(ValueError, match=words):
        share(paths, 2, own)
