"""The judge of rounds that ranks record: it takes what is right, and nothing else."""

import copy

import pytest
import rounds

pytestmark = pytest.mark.fast


def recorded() -> list[dict]:
    """Records of three ranks, with two of them enough: rank 2 is late in round 0, passes in round 1, where its late value is, and
    dies in round 2."""
    records = [{"kind": "session", "session": 0, "rank": rank, "size": 3, "rule": rounds.rule(0, 3)} for rank in range(3)]
    gives = {0: {0: 0, 1: 1, 2: 2}, 1: {0: 0, 1: 1, 2: None}, 2: {0: 0, 1: 1}}
    sums = {0: ([0, 1], [9]), 1: ([1, 2], [64, 8]), 2: ([0, 1], [0, 1, 9])}
    for number, (contributors, values) in sums.items():
        for rank, digit in gives[number].items():
            records.append({"kind": "gives", "session": 0, "rank": rank, "round": number, "digit": digit})
            records.append({"kind": "has", "session": 0, "rank": rank, "round": number, "contributors": contributors,
                            "values": values + [0] * (rounds.ROUNDS - len(values))})
    return [*records, {"kind": "failed", "session": 0, "rank": 0, "error": "rank 2 is lost"}]


def test_what_is_right_is_counted():
    assert rounds.judge(recorded()) == {"sessions": 1, "rounds": 3, "partial": 3, "late": 2}


def every(number: int, **changes):
    """Returns what changes a round on all ranks."""
    return lambda records: [each.update(changes) for each in records if each["kind"] == "has" and each["round"] == number]


NONE = [0] * rounds.ROUNDS
WRONG = {
    "round 0: .* expected": every(0, values=[1 + 8 + 64, *NONE[1:]]),  # the late rank's, too
    "round 1: .* expected": every(1, values=[0, 8, *NONE[2:]]),  # what was late is lost
    "round 2: .* have": every(2, values=[64, 1, 9, *NONE[3:]]),  # what was late comes twice
    "expected 2 of": every(2, contributors=[1], values=[0, 0, 8, *NONE[3:]]),
    "of {0, 1}": every(2, contributors=[0, 2], values=[0, 1, 1, *NONE[3:]]),  # who has given nothing
    "round 0: .*rank.*rank": lambda records: records[4].update(contributors=[0, 2]),  # what rank 0 was told
    "rounds \\[0, 2\\]": lambda records: records.__setitem__(slice(None), [
        each for each in records if each["kind"] != "has" or each["round"] != 1]),
    "do not agree": lambda records: records[-1].update(error="workers do not agree on the tensor"),
    "session 0: ": lambda records: records[1].update(size=2),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_said(message):
    records = copy.deepcopy(recorded())
    WRONG[message](records)
    with pytest.raises(AssertionError, match=message):
        rounds.judge(records)
