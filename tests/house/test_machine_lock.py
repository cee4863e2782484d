"""Tests that need the whole machine run alone; the others wait only for those."""

import threading
import time

import machine_lock
import pytest

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("alone", [False, True])
def test_who_is_alone_is_alone(tmp_path, alone):
    inside, most = [], []

    def use(mine: bool) -> None:
        with machine_lock.held(tmp_path, alone=mine):
            inside.append(mine)
            time.sleep(0.05)
            most.append((len(inside), any(inside)))
            inside.remove(mine)

    users = [threading.Thread(target=use, args=(alone and number % 3 == 0,)) for number in range(9)]
    for user in users:
        user.start()
    for user in users:
        user.join(20)
    assert len(most) == 9 and all(count == 1 for count, exclusive in most if exclusive)
    assert alone or max(count for count, _ in most) > 1


def test_nobody_overtakes_who_waits_to_be_alone(tmp_path):
    order, start = [], threading.Event()

    def use(name: str, alone: bool) -> None:
        start.set()
        with machine_lock.held(tmp_path, alone=alone):
            order.append(name)

    with machine_lock.held(tmp_path, alone=False):
        first = threading.Thread(target=use, args=("alone", True))
        first.start()
        assert start.wait(10)
        time.sleep(0.2)  # it waits for us now, with the turnstile
        second = threading.Thread(target=use, args=("after", False))
        second.start()
        time.sleep(0.2)
        assert order == []
    first.join(10)
    second.join(10)
    assert order == ["alone", "after"]
