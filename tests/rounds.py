"""Rounds of a quorum as ranks record them, and a judge of what they say: who is in which sum, and how often.

A rank that gives something to a round adds 8**rank at the round's own place, so the digits of a sum's places say who is in it
with what of which round. Replicas give the digit of their group. Records are of one kind each, and name the session (a quorum
from its beginning to its end) and the rank:

    session   size, rule: Quorum's arguments
    gives     round, digit: before a rank gives something; None: it gives nothing but what was late
    has       round, contributors, values: the sum at each place
    failed    error: the one that a session, or what is between two, has ended with
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

ROUNDS = 8  # of a session
NEVER = "do not agree", "check words", "have given to round"  # whoever dies


def rule(session: int, ranks: int) -> dict[str, Any]:
    """Returns Quorum's arguments for a session: each kind of rule in turn."""
    most = f"k={ranks - 1}"
    return [
        {"complete": most},
        {"complete": "all", "deadline": 0.02, "least": 1},
        {"complete": "all", "replicas": [[0, 1], [*range(2, ranks)]][: ranks - 1]},  # of two ranks: one group
        {"complete": most, "late": "drop", "ahead": 1},
        {"complete": "k=1", "ahead": 3},
        {"complete": "dynamic"},
        {"complete": most, "deadline": 0.01, "ahead": 0},
    ][session % 7]


def judge(records: Iterable[dict[str, Any]]) -> Counter[str]:
    """Checks all sessions. Returns the number of rounds of each kind. AssertionError: a round is not the same for all ranks,
    has a wrong sum, or too few contributors."""
    sessions: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        if record["kind"] != "failed":
            sessions[record["session"]].append(record)
        else:
            assert not any(text in record["error"] for text in NEVER), record
    tally = Counter[str](sessions=len(sessions))
    for session, entries in sessions.items():
        tally += _session(session, entries)
    return tally


def _session(session: int, entries: list[dict[str, Any]]) -> Counter[str]:
    heads = [(each["size"], each["rule"]) for each in entries if each["kind"] == "session"]
    size, arguments = heads[0]
    assert all(head == heads[0] for head in heads), f"session {session}: {heads}"
    groups = arguments.get("replicas") or [[rank] for rank in range(size)]
    gives = {(each["round"], each["rank"]): each["digit"] for each in entries if each["kind"] == "gives"}
    has: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for each in entries:
        if each["kind"] == "has":
            has[each["round"]].append(each)
    assert [*sorted(has)] == [*range(len(has))], f"session {session}: rounds {sorted(has)}"
    tally, kept = Counter[str](), {rank: [0] * ROUNDS for rank in range(size)}
    for number in range(len(has)):
        where, first = f"session {session} of {size} with {arguments}, round {number}", has[number][0]
        for each in has[number]:
            assert (each["contributors"], each["values"]) == (first["contributors"], first["values"]), f"{where}: {has[number]}"
        came = {rank: gives[number, rank] for rank in range(size) if (number, rank) in gives}
        for rank, digit in came.items():
            if digit is not None:
                kept[rank][number] += 8**digit
        _round(where, arguments, groups, came, kept, first)
        over = {rank for group in groups if {*group} & {*first["contributors"]} for rank in group}
        for rank in range(size) if arguments.get("late") == "drop" else over:
            kept[rank] = [0] * ROUNDS
        tally += Counter(rounds=1, partial=len(first["contributors"]) < len(groups), late=any(first["values"][:number]))
    return tally


def _round(where: str, arguments: dict[str, Any], groups: list[list[int]], came: Iterable[int], whole: dict[int, list[int]],
           record: dict[str, Any]) -> None:
    """Checks a round to which these ranks ``came``, with all that they had to give: ``whole``."""
    contributors, values = record["contributors"], record["values"]
    willing = {rank for rank in came if any(whole[rank])}
    assert {*contributors} <= willing and len({*contributors}) == len(contributors), f"{where}: {contributors} of {willing}"
    expected = [sum(whole[rank][place] for rank in contributors) for place in range(ROUNDS)]
    assert values == expected, f"{where}: {contributors} have {values}, expected {expected}"
    twice = [place for place, value in enumerate(values) for rank in whole if value >> 3 * rank & 7 > 1]
    assert not twice, f"{where}: {values} has something of rounds {twice} twice"
    assert all(len({*group} & {*contributors}) <= 1 for group in groups), f"{where}: {contributors}, one of each group at most"
    may = willing | {*whole}.difference(came)  # who has not come to it yet may have something
    least = min(_enough(arguments, len(groups)), sum(1 for group in groups if may & {*group}))
    assert len(contributors) >= least, f"{where}: {contributors}, expected {least} of {may} or more"


def _enough(arguments: dict[str, Any], groups: int) -> int:
    """Returns how many contributors a round has at least, if as many have something to give."""
    complete = arguments["complete"]
    if complete == "dynamic" or "deadline" in arguments:
        return arguments.get("least", 1)
    return int(complete[2:]) if complete.startswith("k=") else groups
