"""Table entries over P4Runtime, one by one and in batches, against tests/programs/served/controlled.p4."""

from __future__ import annotations

import pytest
from capabilities import need

need("cc", "p4runtime")

from controlled import ATOMIC, MAC, arrived, fails, frame, refused  # noqa: E402
from p4runtime_client import update  # noqa: E402

from ina.p4.p4runtime.messages import p4  # noqa: E402
from ina.p4.rpc.errors import CODES  # noqa: E402

pytestmark = pytest.mark.build
pytest_plugins = ("controlled",)  # its fixtures


@pytest.fixture
def entries(names):
    return [
        names.entry("l2", {"dst": MAC}, "forward", port=1),
        names.entry("route", {"a": (0x0A000000, 8)}, "forward", port=3),
        names.entry("route", {}, "NoAction"),
        names.entry("acl", {"b": (0x10, 0xF0), "c": (5, 300), "d": 7}, "drop", priority=10),
        names.entry("acl", {"d": 0}, "mirror", priority=2, session=0x10000),
    ]


def test_entries_are_read_as_they_were_written(client, entries, names):
    entries[0].metadata, entries[0].controller_metadata = b"mine", 9
    client.write(*(update("INSERT", table_entry=e) for e in entries))
    for table in ("l2", "route", "acl"):
        mine = [e for e in entries if e.table_id == names.ids[table]]
        answer = [e.table_entry for e in client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids[table])))]
        assert sorted(map(str, answer)) == sorted(map(str, mine))
    everything = [e.table_entry for e in client.read(p4.Entity(table_entry=p4.TableEntry()))]
    assert len(everything) == len(entries) + 2  # and the const ones
    assert client.read(p4.Entity(table_entry=entries[3])) == [p4.Entity(table_entry=entries[3])]
    for pattern, count in (
        (p4.TableEntry(table_id=names.ids["acl"], priority=2), 1),
        (p4.TableEntry(table_id=names.ids["l2"], metadata=b"mine"), 1),
        (p4.TableEntry(table_id=names.ids["l2"], metadata=b"other"), 0),
        (p4.TableEntry(table_id=names.ids["l2"], controller_metadata=8), 0),
        (names.entry("route", {}, "NoAction"), 1),
    ):
        assert len(client.read(p4.Entity(table_entry=pattern))) == count
    client.write(*(update("DELETE", table_entry=e) for e in entries))
    assert len(client.read(p4.Entity(table_entry=p4.TableEntry()))) == 2


def test_byte_strings_of_any_length_are_taken_and_the_shortest_given_back(client, names):
    client.write(update("INSERT", table_entry=names.entry("l2", {"dst": b"\0\0\0\0\0\0\0\x05"}, "forward", port=b"\0\0\x02")))
    (entity,) = client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"])))
    assert entity.table_entry == names.entry("l2", {"dst": b"\x05"}, "forward", port=b"\x02")
    for bad in (
        names.entry("l2", {"dst": b""}, "drop"),
        names.entry("l2", {"dst": 1 << 48}, "drop"),
        names.entry("l2", {"dst": 6}, "forward", port=512),
        names.entry("l2", {"dst": 6}, "forward", port=b""),
    ):
        refused(client, "OUT_OF_RANGE", update("INSERT", table_entry=bad))


def test_wrong_entries_are_refused_and_leave_nothing(client, names):
    def wrong(entry, **fields):
        for name, value in fields.items():
            setattr(entry, name, value)
        return update("INSERT", table_entry=entry)

    twice = names.entry("l2", {"dst": 1}, "drop")
    twice.match.add(field_id=1).exact.value = b"\x01"
    other_kind = names.entry("l2", {}, "drop")
    other_kind.match.add(field_id=1).lpm.prefix_len = 8
    member = names.entry("l2", {"dst": 1})
    member.action.action_profile_member_id = 1
    metered = names.entry("l2", {"dst": 1}, "drop")
    metered.meter_config.cir = 1
    refused(
        client, "INVALID_ARGUMENT",
        wrong(names.entry("l2", {"dst": 1}, "drop"), table_id=0x02FFFFFF),
        wrong(names.entry("l2", {"dst": 1}, "drop"), priority=1),
        wrong(names.entry("l2", {"dst": 1}, "drop"), priority=-1),
        wrong(names.entry("l2", {"dst": 1}, "drop"), is_const=True),
        wrong(names.entry("l2", {"dst": 1}, "drop"), idle_timeout_ns=1),
        wrong(names.entry("l2", {"dst": 1})),
        wrong(names.entry("l2", {}, "drop")),
        wrong(names.entry("l2", {"dst": 1}, "mirror", session=1)),  # no action of this table
        wrong(names.entry("l2", {"dst": 1}, "forward")),  # parameter missing
        wrong(twice), wrong(other_kind), wrong(member),
        wrong(names.entry("acl", {"b": (1, 1)}, "drop")),  # no priority
        wrong(names.entry("acl", {"b": (3, 1)}, "drop", priority=1)),  # bits outside the mask
        wrong(names.entry("acl", {"b": (0, 0)}, "drop", priority=1)),  # don't care
        wrong(names.entry("acl", {"c": (9, 8)}, "drop", priority=1)),
        wrong(names.entry("acl", {"c": (0, 0xFFFF)}, "drop", priority=1)),
        wrong(names.entry("route", {"a": (0, 0)}, "NoAction")),
        wrong(names.entry("route", {"a": (1, 8)}, "NoAction")),
        wrong(names.entry("route", {"a": (0, 33)}, "NoAction")),
        update("UNSPECIFIED", table_entry=names.entry("l2", {"dst": 1}, "drop")),
        p4.Update(type="INSERT"), wrong(metered),
    )
    assert len(client.read(p4.Entity(table_entry=p4.TableEntry()))) == 2


def test_existing_missing_and_too_many_entries(client, names):
    entry = update("INSERT", table_entry=names.entry("l2", {"dst": 0}, "drop"))
    client.write(entry)
    refused(client, "ALREADY_EXISTS", entry)
    refused(client, "NOT_FOUND", update("MODIFY", table_entry=names.entry("l2", {"dst": 9}, "drop")),
            update("DELETE", table_entry=names.entry("l2", {"dst": 9})))
    client.write(*(update("INSERT", table_entry=names.entry("l2", {"dst": i}, "drop")) for i in range(1, 8)))
    refused(client, "RESOURCE_EXHAUSTED", update("INSERT", table_entry=names.entry("l2", {"dst": 8}, "drop")))


def test_modify_without_an_action_keeps_it(client, names):
    client.write(update("INSERT", table_entry=names.entry("l2", {"dst": MAC}, "forward", port=3)))
    client.write(update("MODIFY", table_entry=names.entry("l2", {"dst": MAC})))
    assert client.read(p4.Entity(table_entry=names.entry("l2", {"dst": MAC}))) == [
        p4.Entity(table_entry=names.entry("l2", {"dst": MAC}, "forward", port=3))
    ]


def test_default_entries(client, names, ports):
    def default(table, action="", **params):
        entry = names.entry(table, None, action, **params)
        entry.is_default_action = True
        return entry

    pattern = p4.Entity(table_entry=default("l2"))
    assert client.read(pattern) == [p4.Entity(table_entry=default("l2", "drop"))]
    client.write(update("MODIFY", table_entry=default("l2", "forward", port=2)))
    assert client.read(pattern) == [p4.Entity(table_entry=default("l2", "forward", port=2))]
    ports[1].send([frame()])
    assert len(arrived(ports[2])) == 1
    client.write(update("MODIFY", table_entry=default("l2")))  # back to the program's
    assert client.read(pattern) == [p4.Entity(table_entry=default("l2", "drop"))]
    client.write(update("MODIFY", table_entry=default("fixed", "forward", port=2)))  # const entries, free default
    client.write(update("MODIFY", table_entry=default("route", "only_default")))
    refused(client, "INVALID_ARGUMENT", update("INSERT", table_entry=default("l2", "drop")),
            update("DELETE", table_entry=default("l2")))
    refused(client, "PERMISSION_DENIED", update("MODIFY", table_entry=default("stubborn", "drop")),
            update("MODIFY", table_entry=default("route", "only_entries")),
            update("INSERT", table_entry=names.entry("route", {"a": (1 << 24, 8)}, "only_default")))


def test_const_tables(client, names):
    entities = client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["fixed"])))
    expected = [names.entry("fixed", {"e": i}, "forward", port=i) for i in (1, 2)]
    for entry in expected:
        entry.is_const = True
    assert [e.table_entry for e in entities] == expected
    refused(client, "PERMISSION_DENIED", *(
        update(type_, table_entry=names.entry("fixed", {"e": 1}, "forward", port=1)) for type_ in ("INSERT", "MODIFY", "DELETE")
    ))


# ---- batches


def test_a_batch_goes_on_after_errors(client, names):
    def entry(i, action="drop"):
        return update("INSERT", table_entry=names.entry("l2", {"dst": i}, action))

    failure = fails("UNKNOWN", client.write, entry(1), entry(1), entry(2), entry(3, "mirror"), entry(2), entry(4))
    assert [code for code, _ in failure.details] == [0, CODES["ALREADY_EXISTS"], 0, CODES["INVALID_ARGUMENT"],
                                                     CODES["ALREADY_EXISTS"], 0]
    assert failure.details[0][1] == "" and "I.l2" in failure.details[1][1]
    entities = client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"])))
    assert {e.table_entry.match[0].exact.value[0] for e in entities} == {1, 2, 4}


@pytest.mark.parametrize("atomicity", ATOMIC)
def test_a_batch_may_be_all_or_none(client, names, atomicity):
    good = [update("INSERT", table_entry=names.entry("l2", {"dst": i}, "drop")) for i in range(3)]
    digest = update("INSERT", digest_entry=p4.DigestEntry(digest_id=names.ids["learn_t"], config={}))
    for bad in (good[1], update("INSERT", table_entry=names.entry("l2", {"dst": b""}, "drop"))):
        failure = fails("UNKNOWN", client.write, *good, digest, bad, atomicity=atomicity)
        codes = [code for code, _ in failure.details]
        assert codes[:4] == [CODES["ABORTED"]] * 4 and codes[4] not in (0, CODES["ABORTED"])
        assert client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"]))) == []
        assert client.read(p4.Entity(digest_entry=p4.DigestEntry())) == []
    client.write(*good, digest, atomicity=atomicity)
    assert len(client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"])))) == 3


def test_details_of_a_large_failed_batch_arrive(client, names):
    """Clients accept 8 KiB of metadata by default."""
    batch = [update("DELETE", table_entry=names.entry("l2", {"dst": i})) for i in range(64)]
    assert [c for c, _ in fails("UNKNOWN", client.write, *batch).details] == [CODES["NOT_FOUND"]] * 64


def test_reads_answer_what_they_can(client, names):
    failure = fails("UNKNOWN", client.read, p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["fixed"])),
                    p4.Entity(table_entry=p4.TableEntry(table_id=1)), p4.Entity(),
                    p4.Entity(extern_entry=p4.ExternEntry(extern_id=1)))
    assert len(failure.entities) == 2
    assert [c for c, _ in failure.details] == [CODES[c] for c in ("OK", "INVALID_ARGUMENT", "INVALID_ARGUMENT", "UNIMPLEMENTED")]
