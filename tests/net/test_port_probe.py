"""Ports that probe their link: probes stay below the port's user, forged ones count for nothing, and a cut loses frames."""

import numpy as np
import pytest

from ina.net.ports import PS, memory_pair
from ina.worlds.testbed.link_board import CUT, FOREIGN, HEARD, HEARD_AT, INTERVAL, LOOKED_AT, LOST, RECEIVE, SENT, LinkBoard

pytestmark = pytest.mark.build
FRAME = bytes.fromhex("020000000002" "020000000001" "0800") + bytes(50)
SEND = 2


def link(session=None, interval=1e-3):
    """Two watched ports, and the board with their words."""
    board, ports = LinkBoard(1), memory_pair(64, 2048)
    board.words[:, INTERVAL] = round(interval * PS)
    for side, port in enumerate(ports):
        port.with_probes(board.end(0, side), board.session if session is None else session[side], 0, side)
    return board, *ports


def probe_of(port, far):
    """The bytes of a probe, as they are on the wire: of a port without probes at the far end."""
    port.receive(now=PS)
    (frame,) = far.receive(now=PS)
    return frame


def test_probes_go_between_the_ports_and_no_user_sees_them():
    board, a, b = link()
    for now in (1, 2, 3):
        assert a.receive(now=now * PS) == [] and b.receive(now=now * PS) == []
    a.receive(now=4 * PS)
    words = board.words
    assert words[:, SENT].tolist() == [4, 3] and words[:, HEARD].tolist() == [3, 3]
    assert a.stats["rx_packets"] == a.stats["tx_packets"] == b.stats["tx_packets"] == 0
    assert words[1, LOOKED_AT] <= 3 * PS and words[1, HEARD_AT] == 3 * PS
    a.close()
    b.close()


def test_frames_among_probes_come_in_order_and_are_counted_alone():
    _, a, b = link()
    frames = []
    for number in range(25):
        frame = FRAME + number.to_bytes(4, "big")
        a.receive(now=(number + 1) * PS)  # sends a probe first
        assert a.send([frame], now=(number + 1) * PS) == 1
        frames.append(frame)
    assert b.receive(limit=7, now=26 * PS) == frames[:7]
    assert b.receive(now=26 * PS) == frames[7:]
    assert b.stats["rx_packets"] == 25 and a.stats["tx_packets"] == 25
    a.close()
    b.close()


def test_the_next_probe_is_due_at_the_interval():
    _, a, b = link(interval=0.25)
    a.receive(now=10 * PS)
    assert a.next_due() == 10 * PS + PS // 4
    a.close()
    b.close()


def test_a_cut_direction_loses_frames_and_probes():
    board, a, b = link()
    board.cut(0, 0, True)
    a.receive(now=PS)
    a.send([FRAME] * 3, now=PS)
    b.send([FRAME], now=PS)
    assert b.receive(now=2 * PS) == [] and a.receive(now=2 * PS) == [FRAME], "only from side 0 to side 1"
    words = board.words
    assert words[1, CUT] == RECEIVE and words[1, LOST] == 3 and words[1, HEARD] == 0 and words[1, HEARD_AT] == 0
    assert words[1, LOOKED_AT] == 2 * PS
    board.cut(0, 0, False)
    a.send([FRAME], now=3 * PS)
    assert b.receive(now=3 * PS) == [FRAME]
    words[0, CUT] = SEND
    a.send([FRAME], now=4 * PS)
    assert b.receive(now=4 * PS) == [] and words[0, LOST] == 1
    a.close()
    b.close()


def test_no_user_of_a_port_can_send_a_probe():
    (near, far), (_, a, b) = memory_pair(64, 2048), link()
    words = np.zeros(16, np.uint64)
    words[INTERVAL] = PS
    near.with_probes(memoryview(words), 7, 0, 0)
    forged = probe_of(near, far)
    assert forged[12:14].hex() == "88b6" and len(forged) == 60
    assert near.send([forged, FRAME], now=PS) == 2
    assert far.receive(now=PS) == [FRAME]
    assert words[FOREIGN] == 1
    for port in (near, far, a, b):
        port.close()


@pytest.mark.parametrize("spoil", ["session", "link", "side", "magic", "short"])
def test_a_probe_of_another_link_or_run_is_dropped_and_counted(spoil):
    plain, watched = memory_pair(64, 2048)
    words = np.zeros(16, np.uint64)
    words[INTERVAL] = PS
    watched.with_probes(memoryview(words), 7, 3, 1)
    other, far = memory_pair(64, 2048)
    own = np.zeros(16, np.uint64)
    own[INTERVAL] = PS
    other.with_probes(memoryview(own), 8 if spoil == "session" else 7, 4 if spoil == "link" else 3, int(spoil == "side"))
    probe = probe_of(other, far)
    if spoil == "magic":
        probe = probe[:14] + b"xxxx" + probe[18:]
    plain.send([probe[:20] if spoil == "short" else probe], now=PS)
    assert watched.receive(now=PS) == []
    assert words[FOREIGN] == 1 and words[HEARD] == 0
    for port in (plain, watched, other, far):
        port.close()


def test_a_hosts_port_takes_no_probe():
    plain, watched = memory_pair(64, 2048)
    words = np.zeros(16, np.uint64)  # no interval
    watched.with_probes(memoryview(words), 7, 3, 1)
    other, far = memory_pair(64, 2048)
    own = np.zeros(16, np.uint64)
    own[INTERVAL] = PS
    other.with_probes(memoryview(own), 7, 3, 0)
    plain.send([probe_of(other, far), FRAME], now=PS)
    assert watched.receive(now=PS) == [FRAME]
    assert words[FOREIGN] == 1 and words[HEARD] == words[SENT] == 0
    for port in (plain, watched, other, far):
        port.close()
