"""The table of packet kinds: read from annotations in P4, shown by the tools that are made from it."""

from __future__ import annotations

import pytest
from capabilities import need

from ina.aggregation import protocols
from ina.aggregation.wire import host_headers, kinds, layout
from ina.aggregation.wire.layout import LayoutError
from ina.base.paths import p4_dir

pytestmark = pytest.mark.fast
ROW = '@kind[program="switchml"{}]\nconst bit<4> X_{} = {};\n'


def test_each_number_has_the_name_that_the_programs_use():
    assert [(kind.number, kind.name) for kind in kinds.switchml()] == [
        (1, "data"), (2, "pending"), (3, "maximum"), (4, "refused"), (5, "indices"), (6, "zeros"), (7, "floats"), (8, "to"),
        (9, "lanes"), (10, "bytes"), (11, "offer")]
    for rows, prefix, wire in ((kinds.switchml(), "SWITCHML_", layout.load()), (kinds.atp(), "ATP_", layout.load_atp())):
        assert {f"{prefix}{kind.name.upper()}": kind.number for kind in rows} == {
            name: number for name, number in wire.constants.items()
            if name.startswith(prefix) and name.removeprefix(prefix) not in ("PORT", "MASK")}, "each constant has a row"


def test_sizes_are_those_of_the_headers():
    sizes = {kind.name: (kind.extra_bytes, kind.quarters, kind.payload_bytes) for kind in kinds.switchml()}
    assert sizes == {"data": (0, 4, 0), "pending": (0, 0, 4), "maximum": (0, 4, 0), "refused": (0, 0, 0), "indices": (0, 2, 0),
                     "zeros": (0, 0, 0), "floats": (0, 4, 0), "to": (8, 4, 0), "lanes": (0, 4, 0), "bytes": (0, 2, 0),
                     "offer": (12, 0, 0)}
    assert {kind.name: kind.payload_bytes for kind in kinds.atp() if kind.payload_bytes} == {"pending": 4}


def test_every_row_is_of_a_protocol_that_declares_its_reduction():
    numbers = {"sum": protocols.SUM, "max": protocols.MAX, "own": protocols.OWN}
    for kind in (*kinds.switchml(), *kinds.atp()):
        if kind.reduction != "none":
            assert numbers[kind.reduction] in protocols.reductions(kind.program), kind.name
        assert (kind.completes == "none") == (kind.contributors == "none"), kind.name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (ROW.format(', reduction="mean"', "A", 1), r"X_A: reduction = 'mean': expected one of \['none', 'sum', 'max', 'own'\]"),
        (ROW.format(", checked=2", "A", 1), r"X_A: checked = 2: expected one of \[0, 1\]"),
        (ROW.format(", again=3", "A", 1), "X_A: again = 3: expected a name"),
        (ROW.format(', colour="red"', "A", 1), "X_A: there is no column 'colour'"),
        (ROW.format(', payload="sums"', "A", 1), "X_A: there is no header sums_t"),
        (ROW.format(', again="b"', "A", 1), "X_A: there is no kind 'b'; there are: a"),
        (ROW.format("", "A", 1) + ROW.format("", "B", 1), "two kinds have one number: a 1, b 1"),
        (ROW.format("", "A", 0), "X_A = 0: expected 1..15"),
        (ROW.format("", "A", 16), "X_A = 0: expected 1..15"),  # it wraps
        (ROW.format("", "A", 200).replace("bit<4>", "bit<8>"), "X_A = 200: expected 1..15"),
        (ROW.format(', values="always"', "A", 1), "X_A: values = 'always': expected a payload"),
        (ROW.format(', values="zeros", payload="values"', "A", 1), "X_A: values = 'zeros': expected no payload"),
        (ROW.format(', result=""', "A", 1), "X_A: there is no kind ''; there are: a"),
        ("@kind[reduction=\"sum\"] const bit<4> X_A = 1;", "X_A: program = '': there is no"),
    ],
)
def test_wrong_rows_say_what_was_expected(tmp_path, text, problem):
    path = tmp_path / "headers.p4"
    path.write_text(text)
    with pytest.raises(LayoutError, match=problem):
        kinds.read(path, "X_")


def test_scapy_reads_and_builds_packets_for_receivers():
    need("scapy")
    from ina.aggregation.wire.scapy_layers import Check, Exponents, Receivers, SwitchML, Values

    built = SwitchML(msg_type=8, size=0) / Exponents() / Check() / Receivers(ranks=5, members=7) / Values(v=list(range(32)))
    read = SwitchML(bytes(built))
    assert (read[Receivers].ranks, read[Receivers].members, read[Values].v) == (5, 7, list(range(32)))
    assert layout.checksum(bytes(built)[:30]) == 0, "the checksum covers both bitmaps"
    assert Values not in SwitchML(bytes(SwitchML(msg_type=8, size=7) / Exponents() / Check() / Receivers(ranks=5, members=7)))


def test_scapy_reads_and_builds_atp_s_packets_for_receivers():
    need("scapy")
    from ina.aggregation.wire.scapy_atp import ATP, ATPCheck, ATPReceivers, ATPValues

    wire = layout.load(32, p4_dir() / "include/atp_routes/headers.p4")
    built = bytes(ATP(msg_type=10, job=3) / ATPCheck() / ATPReceivers(ranks=5, members=7) / ATPValues(v=list(range(32))))
    read = ATP(built)
    assert (read[ATPReceivers].ranks, read[ATPReceivers].members, read[ATPValues].v) == (5, 7, list(range(32)))
    assert layout.checksum(built[: wire["atp"].size + wire["check"].size + 8]) == 0
    assert ATPValues not in ATP(bytes(ATP(msg_type=11) / ATPCheck() / ATPReceivers(ranks=5, members=7)))


def test_scapy_reads_and_builds_offers():
    need("scapy")
    from ina.aggregation.wire.scapy_layers import Check, Exponents, Offer, SwitchML

    built = SwitchML(msg_type=11, size=7) / Exponents() / Check() / Offer(state=1, least=7, rivals=6, ranks=1)
    read = SwitchML(bytes(built))[Offer]
    assert (read.state, read.least, read.rivals, read.ranks) == (1, 7, 6, 1)
    assert layout.checksum(bytes(built)) == 0, "the checksum covers all of it"


@pytest.mark.parametrize("path", host_headers.FILES)
def test_what_the_host_s_code_knows_is_what_the_programs_say(path):
    assert (p4_dir().parent / path).read_text() == host_headers.FILES[path](), "run make generated"
