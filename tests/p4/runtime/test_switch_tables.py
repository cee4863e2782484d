"""Entries written through `Switch.write`, and their effect on a compiled program's actions, counters and reports."""

from __future__ import annotations

import pytest
from v1_program import source

from ina.p4.compiler.build import compile_program
from ina.p4.runtime import DirectCounterEntry, EntityError, Program, RegisterEntry, Switch, TableEntry, delete, insert, modify

pytestmark = pytest.mark.build
TEXT = source(
    ingress="route.apply(); if (hdr.data.e == 1) { history.write((bit<32>)hdr.data.d, hdr.data.b ++ hdr.data.a); }",
    ingress_locals="""
    direct_counter(CounterType.packets_and_bytes) uses;
    register<bit<64>>(256) history;
    action to(bit<9> port, bit<32> mark) { sm.egress_spec = port; hdr.data.b = mark; }
    action drop() { mark_to_drop(sm); }
    table route {
        key = { hdr.data.a: ternary; hdr.data.c: range; hdr.data.d: exact; hdr.data.e: optional; }
        actions = { to; drop; }
        default_action = drop();
        counters = uses;
        size = 3;
    }
    """,
)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Program:
    path = tmp_path_factory.mktemp("tables") / "tables.p4"
    path.write_text(TEXT)
    return Program(compile_program(path).so_path)


@pytest.fixture
def switch(program):
    with Switch(program) as sw:
        for port in range(4):
            sw.add_port(port)
        yield sw


def frame(a: int = 0, b: int = 0, c: int = 0, d: int = 0, e: int = 0) -> bytes:
    head = a.to_bytes(4, "big") + b.to_bytes(4, "big") + c.to_bytes(2, "big") + bytes([d, e])
    return head + bytes(48)


def entry(d: int, port: int, mark: int, priority: int, **match) -> TableEntry:
    return TableEntry("route", {"hdr.data.d": d, **match}, "to", {"port": port, "mark": mark}, priority)


def test_priority_ternary_range_and_optional(switch):
    switch.write(
        insert(
            entry(7, 1, 0x11111111, 1),
            entry(7, 2, 0x22222222, 5, **{"hdr.data.a": (0xAB000000, 0xFF000000), "hdr.data.c": (10, 20)}),
            entry(7, 3, 0x33333333, 9, **{"hdr.data.e": 4}),
        )
    )
    assert switch.step(frame(d=6), 0) == []
    assert switch.step(frame(d=7), 0) == [(1, frame(b=0x11111111, d=7))]
    assert switch.step(frame(a=0xABCDEF01, c=20, d=7), 0) == [(2, frame(0xABCDEF01, 0x22222222, 20, 7))]
    assert switch.step(frame(a=0xABCDEF01, c=21, d=7), 0) == [(1, frame(0xABCDEF01, 0x11111111, 21, 7))]
    assert switch.step(frame(a=0xABCDEF01, c=20, d=7, e=4), 0) == [(3, frame(0xABCDEF01, 0x33333333, 20, 7, 4))]


def test_direct_counters_belong_to_their_entries(switch):
    first, second = entry(1, 1, 0, 1), entry(2, 1, 0, 1)
    switch.write(insert(first, second))
    for _ in range(3):
        switch.step(frame(d=1), 0)
    switch.step(frame(d=2), 0)
    assert switch.read([DirectCounterEntry(first)]) == [DirectCounterEntry(first, 3, 180)]
    assert switch.read([DirectCounterEntry(second)]) == [DirectCounterEntry(second, 1, 60)]
    switch.write(modify(DirectCounterEntry(second, 40, 50)))
    switch.step(frame(d=2), 0)
    assert switch.read([DirectCounterEntry(second)]) == [DirectCounterEntry(second, 41, 110)]
    switch.write(delete(first))
    switch.write(insert(entry(9, 1, 0, 1)))  # reuses the cell of `first`, not its counts
    assert switch.read([DirectCounterEntry(entry(9, 1, 0, 1))])[0].packets == 0
    with pytest.raises(EntityError, match="no entry with match"):
        switch.read([DirectCounterEntry(first)])


def test_default_action_and_capacity(switch):
    switch.write(modify(TableEntry("route", {}, "to", {"port": 2, "mark": 5}, is_default=True)))
    assert switch.step(frame(d=1), 0) == [(2, frame(b=5, d=1))]
    switch.write(modify(TableEntry("route", is_default=True)))
    assert switch.step(frame(d=1), 0) == []
    switch.write(insert(*(entry(d, 1, 0, 1) for d in range(3))))
    with pytest.raises(EntityError, match="full with 3 entries"):
        switch.write(insert(entry(3, 1, 0, 1)))


def test_wide_registers(switch):
    switch.step(frame(a=1, b=2, d=200, e=1), 0)
    assert int(switch.register("history", 200)[0]) == 2 << 32 | 1
    switch.write(modify(RegisterEntry("history", 5, 2**64 - 1)))
    assert switch.read([RegisterEntry("history", 5)])[0].value == 2**64 - 1
