"""``ina top`` on a terminal: real keys, and the screens that they lead to, over 200 links of a played switch process."""

from __future__ import annotations

import os
import re
import signal
import sys

import pytest
from terminal import Terminal

from ina.cli import top

LINKS = 200
PLAYED = """
import os, sys, threading
from ina.aggregation.controller.client import ControlError
from ina.base.command import run
from ina.cli import top
looks = iter(range(10**9))

def sample(name):
    look = next(looks)
    if look > 1 and os.path.exists(sys.argv[1] + "/gone"):
        raise ControlError("gone", "it ended")
    if look > 1 and os.path.exists(sys.argv[1] + "/wrong"):
        raise OSError("a fault of the test's")
    return {"ping": {"pid": 7, "program": "switchml.p4\\x1b[2J", "free_slots": 3, "look": look},
            "jobs": {"jobs": {"a/b": {"members": {"0": {}}, "workers": 2, "slots": 16, "root": "s1"}}}}

def rates(old, new):
    def link(number):
        busy = number % 2 == 0
        return {"up_packets": busy * number, "up_bits": busy * 1e6 * (300 - number), "down_packets": 0, "down_bits": 0,
                "drops": number == 42}
    return {"links": {f"h{number}": link(number) for number in range(1, 201)},
            "faults": [{"link": "h9", "state": "down", "began": 0, "reason": "it has no carrier"}]}

sys.exit(run("ina", lambda: top.show(lambda: ["s"], sample, rates, 0.05)))
"""
SHIFTED = re.compile(r"link h(\d+) ")


def links(screen):
    """Numbers of the links on a screen, from the first line to the last."""
    return [int(match[1]) for line in screen if (match := SHIFTED.match(line))]


@pytest.fixture
def terminal(tmp_path):
    with Terminal([sys.executable, "-c", PLAYED, str(tmp_path)]) as terminal:
        terminal.until(links)
        yield terminal


@pytest.mark.build
def test_keys_sort_hide_scroll_and_end(terminal):
    screen = terminal.until(links)
    assert screen[0] == "@s: process 7, switchml.p4\\x1b[2J, 3 slots free", "a name does nothing to the terminal"
    assert screen[1] == "  job a/b: 1 of 2 workers, 16 slots, root s1"
    assert "link h9 is down" in screen[2] and "it has no carrier" in screen[2]
    assert links(screen)[:3] == [1, 2, 3] and len(screen) == 30

    terminal.press("\x1b[F")  # End
    assert links(terminal.until(lambda screen: 200 in links(screen)))[-2:] == [199, 200], "the last of 200"
    terminal.press("\x1b[H\x1b[6~")  # Home, page down
    page = len(links(screen))
    assert links(terminal.until(lambda screen: links(screen)[0] == page + 1))[0] == page + 1
    terminal.press("\x1b[A\x1b[A\x1bOB")  # up, up, down
    terminal.until(lambda screen: links(screen)[0] == page)
    terminal.press("\x1b[1~")  # Home of other terminals

    terminal.press("i")
    screen = terminal.until(lambda screen: "idle ones hidden" in screen[-1])
    assert links(screen)[:3] == [2, 4, 6] and "of 100, idle ones hidden" in screen[-1]
    terminal.press("\x1b[C")  # right: packets in
    screen = terminal.until(lambda screen: links(screen)[0] == 200)
    assert links(screen)[:3] == [200, 198, 196] and "in packets/sv" in screen[3]
    terminal.press("r")
    assert links(terminal.until(lambda screen: links(screen)[0] == 2))[:2] == [2, 4]
    terminal.press("\x1b[C\x1b[C\x1b[C\x1b[C")  # drops
    assert links(terminal.until(lambda screen: links(screen)[0] == 42))[1] == 2, "equal ones by name"

    terminal.press("?")
    terminal.until(lambda screen: any("the column to sort by" in line for line in screen))
    terminal.press("q")
    assert terminal.status() == 0 and terminal.is_sane()


@pytest.mark.build
def test_a_new_size_is_a_new_screen(terminal):
    terminal.resize(60, 12)
    screen = terminal.until(lambda screen: len(screen) == 12)
    assert all(len(line) <= 60 for line in screen) and links(screen)[0] == 1
    terminal.resize(1, 1)
    terminal.until(lambda screen: len(screen) == 1)
    terminal.resize(100, 40)
    terminal.until(lambda screen: len(screen) == 40)
    terminal.press("q")
    assert terminal.status() == 0


@pytest.mark.build
def test_a_pause_keeps_the_figures_and_a_switch_that_has_gone_keeps_none(terminal, tmp_path):
    terminal.press(" ")
    terminal.until(lambda screen: "paused" in screen[-1])
    (tmp_path / "gone").touch()
    terminal.press("j")
    assert links(terminal.until(lambda screen: links(screen)[0] == 2))
    terminal.press(" ")
    screen = terminal.until(lambda screen: not links(screen))
    assert "@s is left out: it ended" in screen[-2] and "0-0 of 0" in screen[-1]


@pytest.mark.build
@pytest.mark.parametrize(("end", "status"), [("\x03", 130), (signal.SIGTERM, 143), ("wrong", 1)],
                         ids=["ctrl-c", "sigterm", "an exception"])
def test_any_end_gives_the_terminal_back(terminal, tmp_path, end, status):
    if end == "wrong":
        (tmp_path / "wrong").touch()
    elif isinstance(end, str):
        terminal.press(end)
    else:
        terminal.process.send_signal(end)
    assert terminal.status() == status
    assert terminal.is_sane()


@pytest.mark.build
def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(terminal):
    os.kill(terminal.process.pid, signal.SIGTSTP)
    pid, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    terminal.read()
    assert terminal.is_sane()
    frames = len(terminal.output)
    terminal.process.send_signal(signal.SIGCONT)
    terminal.until(lambda _: "\x1b[J" in terminal.output[frames:])
    terminal.press("q")
    assert terminal.status() == 0 and terminal.is_sane()


@pytest.mark.fast
def test_keys_may_come_in_parts_and_with_others():
    assert top.keys("\x1b[") == ([], "\x1b[")
    assert top.keys("\x1b[5~q") == (["page up", "quit"], "")
    assert top.keys("x\x1b[99;5~\x1bxr") == (["reverse"], ""), "unknown keys mean nothing"
    assert top.keys("\x1b[" + "1;" * 64) == ([], ""), "an endless key is none"


@pytest.mark.fast
def test_ports_are_in_the_order_of_their_numbers_and_several_processes_have_names():
    rate = dict.fromkeys(("in_packets", "in_bits", "out_packets", "out_bits", "drops"), 0.0)
    look = top.Look({}, {"b": {"ports": {"10": rate, "9": rate}}, "a": {"ports": {"0": {**rate, "drops": 1.0}}}}, [])
    view = top.View()
    assert [row.name for row in view.ordered(top.rows(look))] == ["@a port 0", "@b port 9", "@b port 10"]
    view.press("idle")
    assert [row.name for row in view.ordered(top.rows(look))] == ["@a port 0"]
