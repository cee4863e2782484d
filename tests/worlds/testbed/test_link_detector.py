"""The detector of failed links, on a clock of the test's: losses, late threads, flaps, ends that begin anew."""

import random

import pytest

from ina.worlds.testbed.link_detector import FLAPPING, HOLD, LONGEST_HOLD, SLACK, DirectionDetector, LinkHealth, Sight

pytestmark = pytest.mark.fast
INTERVAL = 50e-3


class Direction:
    """A sender, a receiver and a wire; each step is a millisecond. ``up``: the wire; ``runs``, ``looks``: the two threads."""

    def __init__(self):
        self.detector = DirectionDetector()
        self.now, self.up, self.runs, self.looks = 100.0, True, True, True
        self.sent = self.heard = 0
        self.sent_at = self.heard_at = self.looked_at = 0.0
        self.waiting = []  # frames that the receiver has not taken
        self.next_probe = self.now

    def step(self, data=False):
        self.now += 1e-3
        if self.runs and self.now >= self.next_probe:
            self.sent, self.sent_at = self.sent + 1, self.now
            self.next_probe = self.now + INTERVAL
            if self.up:
                self.waiting.append(self.sent)
        if data and self.up:
            self.waiting.append(0)
        if self.looks:
            for number in self.waiting:
                self.heard, self.heard_at = max(number, self.heard), self.now
            self.waiting.clear()
            self.looked_at = self.now

    def run(self, seconds, every=25, data=False):
        """The most probes that were missed at any time; the detector looks every so many steps."""
        most = 0
        for number in range(round(seconds * 1e3)):
            self.step(data)
            if number % every == 0:
                sight = Sight(self.sent, self.sent_at, self.heard, self.heard_at, self.looked_at)
                most = max(most, self.detector.observe(sight))
        return most


def test_a_link_that_works_misses_nothing():
    assert Direction().run(5) == 0


def test_a_cut_is_three_misses_within_300_ms():
    one = Direction()
    one.run(1)
    one.up = False
    assert one.run(0.3) >= 3


def test_single_losses_are_no_failure():
    one, rng = Direction(), random.Random(1)
    one.run(0.2)
    most = 0
    for _ in range(200):  # each window of 50 ms: lost or not, never two in a row
        one.up = rng.random() < 0.5
        most = max(most, one.run(INTERVAL))
        one.up = True
        most = max(most, one.run(INTERVAL))
    assert 0 < most < 3


def test_threads_without_a_processor_raise_no_alarm():
    one = Direction()
    one.run(0.5)
    one.looks = False  # the receiver stands still: it has missed nothing that it has not looked for
    assert one.run(2) == 0
    one.looks = True
    assert one.run(1) == 0
    one.runs = False  # the sender stands still: nothing is missing
    assert one.run(2) == 0
    one.runs = True
    assert one.run(1) == 0


def test_a_detector_that_looks_late_raises_no_alarm():
    one = Direction()
    one.run(0.2)
    assert one.run(10, every=1900) == 0


def test_a_frame_that_is_late_by_less_than_the_slack_is_no_miss():
    detector = DirectionDetector()
    detector.observe(Sight(5, 1.0, 5, 1.0, 1.0))
    assert detector.observe(Sight(9, 1.2, 5, 1.0, 1.2 + SLACK / 2)) == 0
    assert detector.observe(Sight(9, 1.2, 5, 1.0, 1.2 + SLACK)) == 4
    assert detector.observe(Sight(9, 1.2, 9, 1.3, 1.3)) == 0


def test_other_frames_show_that_a_link_works_when_its_probes_are_lost():
    detector = DirectionDetector()
    detector.observe(Sight(5, 1.0, 5, 1.0, 1.0))
    assert detector.observe(Sight(8, 1.2, 5, 1.25, 1.3)) == 0
    assert detector.observe(Sight(11, 1.4, 5, 1.25, 1.5)) == 3


def test_an_end_that_begins_anew_is_no_failure():
    one = Direction()
    one.run(1)
    one.sent, one.heard = 0, 0  # both: a switch that was started anew
    assert one.run(1) == 0
    one.heard = 0
    one.sent = 0
    assert one.run(0.5) == 0
    one.up = False
    assert one.run(0.3) >= 3, "and it still notices"


def test_a_detector_that_begins_anew_raises_no_alarm_and_notices_a_dead_link():
    one = Direction()
    one.run(1)
    one.detector = DirectionDetector()
    assert one.run(1) == 0
    one.up = False
    one.run(1)
    one.detector = DirectionDetector()  # while the link is dead
    assert one.run(0.3) >= 3


def test_numbers_from_the_future_hide_no_failure():
    detector = DirectionDetector()
    detector.observe(Sight(5, 1.0, 900, 1.0, 1.0))  # a forged number: more than was sent
    assert detector.observe(Sight(9, 1.2, 900, 1.0, 1.3)) == 4


# ---- links


def test_a_link_is_up_again_after_a_while_without_faults():
    link = LinkHealth()
    assert not link.update(10.0, "") and not link.reason
    assert link.update(10.1, "no carrier") and link.reason == "no carrier"
    assert not link.update(10.2, "no carrier") and not link.update(10.3, "") and link.due() == 10.3 + HOLD
    assert not link.update(10.3 + HOLD / 2, "") and link.reason
    assert link.update(10.3 + HOLD, "") and not link.reason and link.due() is None


def test_a_fault_within_the_hold_starts_it_again():
    link = LinkHealth()
    link.update(10.0, "cut")
    link.update(10.1, "")
    assert not link.update(10.2, "cut") and link.due() is None
    assert not link.update(10.2 + HOLD, "") and link.update(10.2 + 2 * HOLD, "")


def test_a_flapping_link_stays_down_longer_each_time():
    link, now, holds = LinkHealth(), 10.0, []
    for _ in range(8):
        assert link.update(now, "cut")
        link.update(now + 0.01, "")
        holds.append(link.due() - now - 0.01)
        now = link.due()
        assert link.update(now, "")
        now += 0.01
    assert [round(hold, 6) for hold in holds[:4]] == [HOLD, 2 * HOLD, 4 * HOLD, 8 * HOLD]
    assert max(holds) == pytest.approx(LONGEST_HOLD)
    link.update(now + FLAPPING, "cut")
    link.update(now + FLAPPING, "")
    assert link.due() == pytest.approx(now + FLAPPING + HOLD), "after a quiet time it begins anew"
