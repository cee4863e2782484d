"""Tests that need the whole machine run alone; the others wait only for those."""

import fcntl
import threading

import machine_lock
import pytest
from waiting import LONG, until

pytestmark = pytest.mark.fast


def free(file, how: int) -> bool:
    """True if a lock of the file can be had at once."""
    with file.open("a") as opened:
        try:
            fcntl.flock(opened, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.parametrize("alone", [False, True])
def test_who_is_alone_is_alone(tmp_path, alone):
    inside, most, beside = [], [], threading.Barrier(9)

    def use(mine: bool) -> None:
        with machine_lock.held(tmp_path, alone=mine):
            inside.append(mine)
            if not alone:
                beside.wait(LONG)  # all are inside at once
            shared, exclusive = free(tmp_path / "machine", fcntl.LOCK_SH), free(tmp_path / "machine", fcntl.LOCK_EX)
            most.append((len(inside), any(inside), shared, exclusive))
            inside.remove(mine)

    users = [threading.Thread(target=use, args=(alone and number % 3 == 0,)) for number in range(9)]
    for user in users:
        user.start()
    for user in users:
        user.join(LONG)
    assert len(most) == 9 and all(count == 1 for count, exclusive, *_ in most if exclusive)
    assert [(shared, others) for _, exclusive, shared, others in most if exclusive] == [(False, False)] * (3 * alone)
    assert not any(others for *_, others in most)


def test_nobody_overtakes_who_waits_to_be_alone(tmp_path):
    order = []

    def use(name: str, alone: bool) -> None:
        with machine_lock.held(tmp_path, alone=alone):
            order.append(name)

    with machine_lock.held(tmp_path, alone=False):
        first = threading.Thread(target=use, args=("alone", True))
        first.start()
        until(lambda: not free(tmp_path / "turnstile", fcntl.LOCK_SH), "one that waits for us, with the turnstile")
        second = threading.Thread(target=use, args=("after", False))
        second.start()
        assert order == [] and not free(tmp_path / "turnstile", fcntl.LOCK_SH)
    first.join(LONG)
    second.join(LONG)
    assert order == ["alone", "after"]
