"""Table images against a slow model: the entry that a key finds, for every kind of match, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ina.base.native import ffi, lib
from ina.p4.runtime.entities import TableEntry
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.p4info import P4Info
from ina.p4.runtime.tables import Tables, words_of

pytestmark = pytest.mark.build
WIDTHS = [1, 7, 8, 16, 32, 48, 64, 65, 128]


def description(*fields: tuple[str, int], size: int = 1024, **changes: Any) -> tuple[P4Info, dict[str, Any]]:
    """P4Info and layout of a program with one table `c.t`; its actions: c.none() and c.set(wide 70 bits, narrow 9)."""
    names = [f"hdr.f{i}" for i in range(len(fields))]
    params = [("wide", 70), ("narrow", 9)]
    p4info = {
        "tables": [
            {
                "preamble": {"id": 1, "name": "c.t", "alias": "t"},
                "size": str(size),
                "matchFields": [
                    {"id": i + 1, "name": n, "bitwidth": width, "matchType": match.upper()}
                    for i, (n, (match, width)) in enumerate(zip(names, fields, strict=True))
                ],
                "actionRefs": [{"id": 2, "scope": "DEFAULT_ONLY"}, {"id": 3}],
            }
            | changes.pop("p4info", {})
        ],
        "actions": [
            {"preamble": {"id": 2, "name": "c.none", "alias": "none"}},
            {
                "preamble": {"id": 3, "name": "c.set", "alias": "set"},
                "params": [{"id": i + 1, "name": n, "bitwidth": w} for i, (n, w) in enumerate(params)],
            },
        ],
    }
    keys, word = [], 0
    for name, (match, width) in zip(names, fields, strict=True):
        keys.append({"name": name, "width": width, "match": match, "word": word})
        word += (width + 63) // 64
    set_params = [{"name": "wide", "width": 70, "word": 0}, {"name": "narrow", "width": 9, "word": 2}]
    table = {
        "name": "c.t", "index": 0, "key_words": word, "keys": keys, "default_action": 0, "default_params": [],
        "actions": [{"name": "c.none", "params": []}, {"name": "c.set", "params": set_params}],
        "entries": [], "const_entries": False, "direct_counter": None,
    }
    return P4Info(p4info), {"tables": [table | changes]}


def find(tables: Tables, layout: dict[str, Any], values: list[int]) -> tuple[int, tuple[int, int]] | None:
    """Action index and parameters of the entry that the compiled lookup finds."""
    image = tables.image()
    t = image.pointer.table[0]
    words = [w for k, v in zip(layout["tables"][0]["keys"], values, strict=True) for w in words_of(v, k["width"])]
    entry = lib.ina_table_find(t, ffi.new("uint64_t[]", words))
    if entry == ffi.NULL:
        return None
    p = entry.words + t.param_offset
    return entry.action, (p[0] | p[1] << 64, p[2])


def put(tables: Tables, match: dict[str, Any], number: int, priority: int = 0, type_: str = "INSERT") -> None:
    params = {"wide": number | 1 << 69, "narrow": number % 512}
    tables.apply(type_, TableEntry("t", match, "set", params, priority))


def entry_of(number: int) -> tuple[int, tuple[int, int]]:
    return 1, (number | 1 << 69, number % 512)


def some(width: int) -> st.SearchStrategy[int]:
    """Few different values, at both ends of the range, so that they collide."""
    top = (1 << width) - 1
    return st.one_of(st.integers(0, min(top, 5)), st.integers(max(0, top - 5), top), st.integers(0, top))


@st.composite
def scenario(draw: st.DrawFn, kinds: list[str]) -> Any:
    fields = [(draw(st.sampled_from(kinds)), draw(st.sampled_from(WIDTHS))) for _ in range(draw(st.integers(1, 3)))]
    fields = [(k, min(w, 64) if k == "range" else w) for k, w in fields]

    def match(kind: str, width: int) -> Any:
        if kind == "exact":
            return draw(some(width))
        if draw(st.booleans()) and draw(st.booleans()):
            return None  # left out
        if kind == "optional":
            return draw(some(width))
        if kind == "range":
            return tuple(sorted((draw(some(width)), draw(some(width)))))
        if kind == "lpm":
            length = draw(st.integers(0, width))
            mask = (1 << width) - (1 << (width - length))
            return draw(some(width)) & mask, length
        mask = draw(some(width))
        return draw(some(width)) & mask, mask

    entries = []
    for _ in range(draw(st.integers(0, 12))):
        given_match = {f"hdr.f{i}": m for i, (k, w) in enumerate(fields) if (m := match(k, w)) is not None}
        entries.append((given_match, draw(st.integers(1, 4))))
    keys = [[draw(some(w)) for _, w in fields] for _ in range(6)]
    for given_match, _ in entries:  # keys that hit
        key = []
        for i, (_, w) in enumerate(fields):
            m = given_match.get(f"hdr.f{i}", draw(some(w)))
            key.append(m[0] if isinstance(m, tuple) else m)
        keys.append(key)
    return fields, entries, keys


def says(kind: str, width: int, match: Any, value: int) -> bool:
    if match is None:
        return True
    if kind in ("exact", "optional"):
        return value == match
    if kind == "range":
        return match[0] <= value <= match[1]
    if kind == "lpm":
        return value >> (width - match[1]) == match[0] >> (width - match[1])
    return value & match[1] == match[0]


def check(fields: Any, entries: Any, keys: Any) -> None:
    p4info, layout = description(*fields)
    tables = Tables(p4info, layout)
    prioritised = p4info.table("t").needs_priority
    there = []
    for number, (match, priority) in enumerate(entries):
        priority = priority if prioritised else 0
        try:
            put(tables, match, number, priority)
        except EntityError as error:
            assert error.code == "ALREADY_EXISTS"
        else:
            there.append((match, priority, number))
    lpm = next((f"hdr.f{i}" for i, (k, _) in enumerate(fields) if k == "lpm"), "")
    prefix = [match.get(lpm, (0, 0))[1] for match, _, _ in there]
    for key in keys:
        hits = [
            (-priority, -prefix[i], number)
            for i, (match, priority, number) in enumerate(there)
            if all(says(k, w, match.get(f"hdr.f{j}"), key[j]) for j, (k, w) in enumerate(fields))
        ]
        got = find(tables, layout, key)
        if not hits:
            assert got is None
        elif prioritised:  # entries of one priority: P4Runtime leaves open which one wins
            best = min(hits)[0]
            assert got in [entry_of(number) for p, _, number in hits if p == best]
        else:
            assert got == entry_of(min(hits)[2])


@settings(max_examples=60, deadline=None)
@given(scenario(["exact"]))
def test_exact(s):
    check(*s)


@settings(max_examples=60, deadline=None)
@given(scenario(["ternary", "exact", "optional"]))
def test_ternary_and_optional(s):
    check(*s)


@settings(max_examples=60, deadline=None)
@given(scenario(["range", "exact", "ternary"]))
def test_range(s):
    check(*s)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(WIDTHS), st.data())
def test_longest_prefix(width, data):
    lengths = data.draw(st.lists(st.integers(0, width), unique=True, max_size=8))
    value = data.draw(some(width))
    entries = [({"hdr.f0": (value & ((1 << width) - (1 << (width - n))), n)}, 0) for n in lengths]
    keys = [[value], [value ^ 1], [0], [(1 << width) - 1]]
    keys += [[value ^ (1 << (width - n)) % (1 << width)] for n in lengths]
    check([("lpm", width)], entries, keys)


def test_ten_thousand_exact_entries():
    p4info, layout = description(("exact", 32), ("exact", 16), size=10000)
    tables = Tables(p4info, layout)
    for i in range(10000):
        put(tables, {"hdr.f0": i * 2654435761 % 2**32, "hdr.f1": i % 65536}, i)
    assert all(find(tables, layout, [i * 2654435761 % 2**32, i % 65536]) == entry_of(i) for i in range(0, 10000, 97))
    assert find(tables, layout, [1, 0]) is None
    with pytest.raises(EntityError, match="full with 10000 entries") as caught:
        put(tables, {"hdr.f0": 1, "hdr.f1": 1}, 1)
    assert caught.value.code == "RESOURCE_EXHAUSTED"


def test_changes_and_ids():
    p4info, layout = description(("exact", 8))
    tables = Tables(p4info, layout)
    for n in range(4):
        put(tables, {"hdr.f0": n}, n)
    before = tables.image()
    put(tables, {"hdr.f0": 2}, 77, type_="MODIFY")
    tables.apply("DELETE", TableEntry("t", {"hdr.f0": 1}))
    assert find(tables, layout, [2]) == entry_of(77) and find(tables, layout, [1]) is None
    assert before.pointer.table[0].entries == 4  # an image never changes
    put(tables, {"hdr.f0": 9}, 9)
    image = tables.image()
    key = ffi.new("uint64_t[]", [9])
    assert lib.ina_table_find(image.pointer.table[0], key).id == 1  # the one that became free
    assert len(tables.entries("t")) == 4


def test_default_entry():
    p4info, layout = description(("exact", 8))
    tables = Tables(p4info, layout)
    assert tables.image().pointer.table[0].default_action == 0
    tables.apply("MODIFY", TableEntry("t", {}, "set", {"wide": 1 << 65, "narrow": 3}, is_default=True))
    image = tables.image()
    assert image.pointer.table[0].default_action == 1
    assert list(image.pointer.table[0].default_params[0:4]) == [0, 2, 3, 0]
    assert [e.params for e in tables.entries("t")] == [{"wide": 1 << 65, "narrow": 3}]
    tables.apply("MODIFY", TableEntry("t", is_default=True))
    image = tables.image()
    assert image.pointer.table[0].default_action == 0
    with pytest.raises(EntityError, match="MODIFY"):
        tables.apply("DELETE", TableEntry("t", {}, "set", is_default=True))


def test_own_entries_keep_their_order():
    rest = {"action": 1, "priority": None, "const": False}
    entries = [
        {"keys": [{"value": "0", "mask": "0"}], "params": ["1", "32", "1"], **rest},
        {"keys": [{"value": "5", "mask": "255"}], "params": ["2", "32", "2"], **rest},
    ]
    p4info, layout = description(("ternary", 8), entries=entries)
    tables = Tables(p4info, layout)
    assert find(tables, layout, [5]) == entry_of(1)
    first = tables.entries("t")[0]
    tables.apply("DELETE", TableEntry("t", first.match, priority=first.priority))
    assert find(tables, layout, [5]) == entry_of(2) and find(tables, layout, [6]) is None


@pytest.mark.parametrize(
    ("match", "priority", "says_"),
    [
        ({"hdr.f0": 256}, 1, r"field hdr.f0: 256 does not fit 8 bits: expected 0..255"),
        ({"hdr.f0": -1}, 1, r"does not fit 8 bits"),
        ({"hdr.f0": "x"}, 1, r"'x' is not a value"),
        ({}, 1, r"exact match field 'hdr.f0' \(8 bits\) is missing"),
        ({"hdr.f0": 1, "f9": 1}, 1, r"no match field 'f9'; it has: hdr.f0, hdr.f1, hdr.f2"),
        ({"hdr.f0": 1, "hdr.f1": (3, 1)}, 1, r"value 0x3 has bits outside its mask 0x1"),
        ({"hdr.f0": 1, "hdr.f2": (4, 3)}, 1, r"empty range 4..3"),
        ({"hdr.f0": 1}, 0, r"priority 0: expected a positive one"),
    ],
)
def test_refused_matches(match, priority, says_):
    tables = Tables(*description(("exact", 8), ("ternary", 8), ("range", 8)))
    with pytest.raises(EntityError, match=says_):
        put(tables, match, 1, priority)
    assert tables.entries() == []


@pytest.mark.parametrize(
    ("entry", "code", "says_"),
    [
        (TableEntry("x"), "NOT_FOUND", "no table 'x'; there are: c.t"),
        (TableEntry("t", {"hdr.f0": (1, 1)}, "set"), "INVALID_ARGUMENT", "bits outside its mask"),
        (TableEntry("t", {"hdr.f0": (1, 9)}, "set"), "INVALID_ARGUMENT", r"prefix length 9: expected 0..8"),
        (TableEntry("t", {}, "none"), "INVALID_ARGUMENT", "entries: no action 'none'"),
        (TableEntry("t", {}, "set", {"wide": 1}), "INVALID_ARGUMENT", "parameter 'narrow' is missing"),
        (TableEntry("t", {}, "set", {"wide": 1, "narrow": 1, "z": 1}), "INVALID_ARGUMENT", "no parameter 'z'"),
        (TableEntry("t", {}, "set", {"wide": 1, "narrow": 512}), "INVALID_ARGUMENT", r"narrow\): 512 does not fit 9"),
        (TableEntry("t", {}, "set", {"wide": 1, "narrow": 1}, 3), "INVALID_ARGUMENT", "priority 3: expected none"),
        (TableEntry("t", {}), "INVALID_ARGUMENT", "an entry needs an action: c.set"),
    ],
)
def test_refused_entries(entry, code, says_):
    tables = Tables(*description(("lpm", 8)))
    with pytest.raises(EntityError, match=says_) as caught:
        tables.apply("INSERT", entry)
    assert caught.value.code == code and tables.entries() == []


def test_refused_changes():
    tables = Tables(*description(("exact", 8)))
    put(tables, {"hdr.f0": 1}, 1)
    cases = [("INSERT", 1, "ALREADY_EXISTS"), ("MODIFY", 2, "NOT_FOUND"), ("DELETE", 2, "NOT_FOUND")]
    for type_, value, code in cases:
        with pytest.raises(EntityError) as caught:
            put(tables, {"hdr.f0": value}, 1, type_=type_)
        assert caught.value.code == code
    fixed = Tables(*description(("exact", 8), p4info={"isConstTable": True, "constDefaultActionId": 2}))
    for entry in (TableEntry("t", {"hdr.f0": 1}, "set"), TableEntry("t", {}, "none", is_default=True)):
        with pytest.raises(EntityError, match="const") as caught:
            fixed.apply("MODIFY", entry)
        assert caught.value.code == "PERMISSION_DENIED"


def test_values_may_be_addresses_and_bytes():
    p4info, layout = description(("exact", 48), ("exact", 32), ("exact", 16))
    tables = Tables(p4info, layout)
    put(tables, {"hdr.f0": "00:00:00:00:00:2a", "hdr.f1": "10.0.0.1", "hdr.f2": b"\xbe\xe0"}, 5)
    assert find(tables, layout, [42, 0x0A000001, 0xBEE0]) == entry_of(5)
