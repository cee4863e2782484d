"""Defects that a simulation must find within SEEDS seeds of EVENTS events."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ina.p4.compiler.build import compile_program
from ina.p4.runtime.loaded_program import Program
from ina.worlds.virtual.simulation import Report, Simulation, macros

from .planting import Plant, planted

SEEDS, EVENTS = 40, 20_000
WRONG, LEAKED, STUCK = "wrong sum|twice", "leaked", "stuck"

_LARGEST = "meta.first == 1 || hdr.exponents.e0 > (int<8>)largest0"
_INCARNATION = "            if incarnation not in self._taken:\n                return incarnation"
_RESEND, _NEVER = (f"if ({test}) {{\n                            " for test in ("hdr.atp.resend == 1", "false"))
_LIFE = "\n    if (h->job != config->job || h->e1 != (int8_t)config->life)"


def p4(file: str, old: str, new: str, violation: str = ".", *also: tuple[str, str], protocol: str = "switchml") -> Plant:
    return Plant(f"p4/include/{file}.p4", old, new, violation, also, protocol)


def c(file: str, old: str, new: str, violation: str = ".", *also: tuple[str, str], protocol: str = "switchml") -> Plant:
    return Plant(f"host/protocol/{file}.c", old, new, violation, also, protocol)


def control(file: str, old: str, new: str, violation: str = ".", *also: tuple[str, str], protocol: str = "switchml") -> Plant:
    return Plant(f"ina/aggregation/controller/{file}.py", old, new, violation, also, protocol)


PLANTS = {
    "rows of another incarnation are used": p4("switchml/phase", "incarnation == meta.incarnation && seen != 0", "seen != 0"),
    "late packets of an earlier life are taken": p4("switchml/admission", "(bit<8>)hdr.exponents.e1 != own_life", "false"),
    "a duplicate is added": p4("switchml/phase", "if (seen & meta.worker != 0)", "if (false)"),
    "an older packet takes a row": p4("switchml/phase", "(int<32>)(hdr.switchml.tsi - tsi) > 0", "true"),
    "packet numbers are compared without the wrap": p4(
        "switchml/phase", "(int<32>)(hdr.switchml.tsi - tsi) > 0", "hdr.switchml.tsi > tsi", STUCK),
    "packet numbers are compared as they are signed": p4(
        "switchml/phase", "(int<32>)(hdr.switchml.tsi - tsi) > 0", "(int<32>)hdr.switchml.tsi > (int<32>)tsi", STUCK),
    "a packet is added to any phase": p4("switchml/phase", "hdr.switchml.tsi != tsi", "false"),
    "the largest exponent is that of the first": p4("switchml/aggregation", _LARGEST, "meta.first == 1", WRONG),
    "the largest exponent is that of an earlier phase": p4(
        "switchml/aggregation", _LARGEST, "hdr.exponents.e0 > (int<8>)largest0", WRONG),
    "overflows are not told": p4(
        "switchml/aggregation", "hdr.switchml.overflow = overflow[LANE_SIGN:LANE_SIGN];", "hdr.switchml.overflow = 0;",
        "overflow"),
    "overflows of an earlier phase are told": p4(
        "switchml/aggregation", "overflows.write(meta.row, (bit<LANE_BITS>)hdr.switchml.overflow << LANE_SIGN);", "", "overflow"),
    "maxima are added": p4("switchml/aggregation", "hdr.switchml.msg_type == SWITCHML_MAXIMUM", "false",
                          f"{WRONG}|wrong overflow flag"),
    "workers do not compare lives": c("frame", _LIFE, "\n    if (h->job != config->job)", ".", (".e1 = -1,", ".e1 = 0,")),
    "workers compare whole packet numbers": c("switchml", "view.tsi != (uint32_t)seq\n", "view.tsi != seq\n", STUCK),
    "workers take a result of another phase": c(
        "switchml", "view.tsi != (uint32_t)seq\n                         || view.set", "view.set", WRONG),
    "workers take a pending frame for a result": c(
        "frame", ".kind = (uint8_t)type,", ".kind = type == INA_WIRE_PENDING ? INA_WIRE_DATA : (uint8_t)type,"),
    "workers do not send again": c(
        "switchml", "now)) >= 0;)\n        ina_slots_mark(st, (uint32_t)index);", "now)) >= 0;)\n        ;", STUCK),
    "workers do not wait for a block's exponent": c(
        "switchml", "case INA_PACKET_BLOCKED: next = BLOCKED", "case INA_PACKET_BLOCKED: next = READY", WRONG),
    "all jobs have one incarnation": control("job_incarnations", _INCARNATION, "            return 1"),
    "each controller begins with the same incarnation": control(
        "job_incarnations", "self._next = chance.randint(1, MOST_INCARNATIONS)", "self._next = 1", "wrong sum|stuck"),
    "a job that ends keeps its entries": control(
        "admission", "delete(*self._entries(job, branch))):\n", "[]):\n", f"{LEAKED}|held twice"),
    "what a refused write left is not looked at": control("admission", "            self.unsure |= error.unsure\n", "", LEAKED),
    "a switch that did not answer is forgotten": control(
        "admission", "                self.unsure.add(branch.switch)\n", "                pass\n", LEAKED),
    "a new controller asks no switch": control(
        "admission", "        self.unsure = set(self.targets)\n        for switch", "        for switch", LEAKED),
    "slots are given twice": control(
        "admission", "all(base >= end or base + slots <= start for start, end in held)", "True", "held twice"),
    "a moved job keeps its incarnation": control(
        "admission", "        (tree,) = self.place(name, old.hosts, old.slots)\n",
        "        (tree,) = self.place(name, old.hosts, old.slots)\n        self.incarnations._next = old.incarnation\n",
        "moved with the incarnation|wrong sum"),
    "a tree goes over a dead link": control(
        "admission", "failed_links=self.down_links,", "failed_links={},", "a tree over what is down"),
    "a route goes over a dead link": Plant(
        "ina/topology/routes.py", "if hop.node in arrivals and direction_of(topology, source, hop) not in dead:",
        "if hop.node in arrivals:", "a wrong route: .* which is down"),
    "a route goes to a host whose link is dead": Plant(
        "ina/topology/routes.py", "if direction_of(topology, edge, last) in dead:", "if False:", "a wrong route"),
    "a job's slots stay its own": control("admission", "job = self.jobs.pop(name, None)", "job = self.jobs.get(name)"),
}

ATP = {
    # the switch
    "late packets of an earlier life are taken": p4("atp/admission", "hdr.atp.life != own_life", "false"),
    "a resend takes no sum up": p4(
        "atp/aggregator", f"{_RESEND}meta.load", f"{_NEVER}meta.load", STUCK, (f"{_RESEND}bitmap", f"{_NEVER}bitmap")),
    "aggregators of another incarnation are used": p4(
        "atp/aggregator", "if (alive && owner == own) {", "if (alive && owner[31:0] == own[31:0]) {", WRONG),
    "aggregators are told by the job only": p4(
        "atp/aggregator", "if (alive && owner == own) {", "if (alive && owner[63:32] == own[63:32]) {", WRONG),
    "what overlaps is added": p4("atp/aggregator", "held != 0 && held & bitmap == 0", "held != 0",
                                  f"{WRONG}|{STUCK}"),  # the server drops what check words find
    "a sum goes up with the bitmap of its last packet": p4("atp/aggregator", "hdr.atp.bitmap = bitmap;", "", "."),
    "results free no aggregator": p4(
        "atp/aggregator", "if (owner == own && hdr.atp.msg_type != Type.PENDING)", "if (false)", "leaked aggregators"),
    "a dead job's aggregators are believed for ever": p4(
        "atp/aggregator", "bool alive = now - stamp <= (bit<48>)meta.lifetime;", "bool alive = true;", "leaked aggregators"),
    "the largest exponent is that of the first": p4(
        "atp/aggregation", "if (meta.add == 1 && hdr.atp.exponent > (int<8>)largest)", "if (false)", WRONG),
    "the largest exponent is that of an earlier number": p4(
        "atp/aggregation", "largest = (bit<8>)hdr.atp.exponent;\n                seen = flag;", "seen = flag;", WRONG),
    "overflows are not told": p4(
        "atp/aggregation", "hdr.atp.overflow = overflow[LANE_SIGN:LANE_SIGN];", "hdr.atp.overflow = 0;", "overflow"),
    "overflows of an earlier number are told": p4(
        "atp/aggregation", "overflows.write(meta.row, (bit<LANE_BITS>)hdr.atp.overflow << LANE_SIGN);", "", "overflow"),
    "maxima are added": p4("atp/aggregation", "meta.add == 1 && hdr.atp.msg_type == Type.MAXIMA", "false",
                           f"{WRONG}|overflow"),
    # the worker
    "workers do not compare lives": c("atp", "\n        || view.life != st->base.config.life", ""),
    "workers take a result of another number": c(
        "atp", " || view.seq != (slot->base.seq & INA_ATP_SEQUENCE_MASK)", "", f"{WRONG}|overflow|{STUCK}"),
    "workers compare whole packet numbers": c(
        "atp", "view.seq != (slot->base.seq & INA_ATP_SEQUENCE_MASK)", "view.seq != slot->base.seq", STUCK),
    "workers take any type for the result": c(
        "atp", "\n        || (view.type != INA_ATP_PENDING && view.type != expected)", ""),
    "workers do not say that they send again": c("atp", "slots_of(st)[index].resend = 1;", "", STUCK),
    "who is told to wait asks again at once": c(
        "atp", "if (view->seen >> st->base.config.worker & 1) {\n        clear_ready", "if (0) {\n        clear_ready",
        "no end"),
    "workers do not send again": c("atp", "ask_again(st, (uint32_t)index);\n        if (ina", "if (ina", STUCK),
    "floats go with the number of the next packet": c(
        "atp", "slot->floats = 1;\n        set_ready(st, index);", "slot->floats = 0;\n        set_ready(st, index);"),
    # the parameter server
    "the server does not compare lives": c("ps", " || view->life != c->life", ""),
    "the server answers from a previous life": c(
        "ps_jobs", "    free(job->state);\n    *job = (struct job){0};\n    return 0;", "    return 0;", ".",
        ("        return -EEXIST;", "        return memcpy(job->state, config, sizeof *config), 0;")),
    "the server adds what it has": c("ps", "if (begins || !(row->bitmap & view.bitmap))", "if (1)", WRONG),
    "the server's row is an older number's": c(
        "ps", "ahead ? ahead < 1ull << (INA_ATP_SEQUENCE_BITS - 1) : floats > row->floats && row->kind != INA_ATP_OFFER", "1"),
    "the server compares numbers without the wrap": c(
        "ps", "ahead ? ahead < 1ull << (INA_ATP_SEQUENCE_BITS - 1) : floats > row->floats",
        "ahead ? view.seq > row->seq : floats > row->floats", STUCK),
    "the server decides anew": c(
        "ps", "    if (row->decided) {\n        stats->overlaps++;", "    if (0) {\n        stats->overlaps++;", f"told|{STUCK}"),
    "the server decides before all have asked": c("ps", "row->bitmap == st->full && (enough", "(enough"),
    "the server lets rivals contribute": c("ps", " && !(row->offers.contributors & view->check0)", "", "rivals"),
    "the server waits for those that pass": c(
        "ps", "(enough || (row->offers.contributors | row->offers.passed) == st->full)", "enough", STUCK),
    "the server does not hear who gives after it has asked": c(
        "ps", "    if (!known && state == INA_OFFER_GIVE", "    if (!again && state == INA_OFFER_GIVE", f"might|{STUCK}"),
    "the server takes fewer than are enough": c("ps", " >= ina_atp_least(view);", " + 1 >= ina_atp_least(view);", "might"),
    "the server answers before all are in": c(
        "ps", "complete = is_complete(st, row), integers", "complete = 1, integers", WRONG),
    "the server tells the last exponent": c("ps", "if (view->exponent > row->exponent)", "if (1)", WRONG),
    "the server tells no overflow": c(
        "ps", "INA_ATP_COLLISION | INA_ATP_ECN | INA_ATP_OVERFLOW", "INA_ATP_COLLISION | INA_ATP_ECN", "overflow"),
    "the server adds to the sum before": c("ps", "const int first = !row->brought, single", "const int first = 0, single"),
    "the server does not answer a resend": c(
        "ps", "stats->repeated += (uint64_t)is_complete(st, row);\n        answer(st, number, view.bitmap);",
        "stats->repeated += (uint64_t)is_complete(st, row);", STUCK),
    "who sends integers learns nothing of floats": c(
        "ps", "row->ask_integers = 1;\n            answer(st, number, view.bitmap);", "", STUCK),
    # the control plane
    "all jobs have one incarnation": control("job_incarnations", _INCARNATION, "            return 1"),
    "all lives are alike": control("job_incarnations", "life = last % self.most + 1", "life = 1"),
    "the server is not told that a job is over": control(
        "ps_client", 'self._call("remove", number=number)', "pass", f"{STUCK}|{LEAKED}"),
    "the server is told another life": control("ps_client", "life=job.life, workers", "life=1, workers", f"{STUCK}|{LEAKED}"),
    "a server that is lost is still a root": control(
        "ps_client", "self.session, self._channel, self.ready = None, None, False\n        self._controller.servers.clear()",
        "self.session, self._channel, self.ready = None, None, False", STUCK),
    "a job that ends keeps its entries": control(
        "admission", "delete(*self._entries(job, branch))):\n", "[]):\n", f"{LEAKED}|held twice"),
    "what a refused write left is not looked at": control("admission", "            self.unsure |= error.unsure\n", "", LEAKED),
    "a new controller asks no switch": control(
        "admission", "        self.unsure = set(self.targets)\n        for switch", "        for switch", LEAKED),
}
QUORUM = {
    "contributors change when they are decided": p4(
        "quorum/offers", "if (left != 0) {\n            seen", "if (true) {\n            seen"),
    "it is decided before all have asked": p4("quorum/offers", "seen == meta.full && (", "("),
    "whom rivals stand for contributes, too": p4("quorum/offers", " && given & hdr.offer.rivals == 0", "", "rivals"),
    "those that pass are waited for": p4("quorum/offers", " || given | without == meta.full", "", STUCK),
    "a phase begins with the count of an older one": p4("quorum/offers", "            count = 0;\n", "", "might"),
    "a phase begins with the contributors of an older one": p4(
        "quorum/offers", "            given = 0;\n", "", f"have given|might|{STUCK}"),
    "who gives after it has asked is not heard": p4(
        "quorum/offers", "if (!known && hdr.offer.state == OFFER_GIVE", "if (!again && hdr.offer.state == OFFER_GIVE",
        f"might|{STUCK}"),
    "more are needed than are enough": p4("quorum/offers", "count >= hdr.offer.least", "count > hdr.offer.least", STUCK),
    "an answer below the root goes to nobody": p4(
        "quorum/offers", "meta.to = To.CHILDREN;\n                meta.complete = 1;", "meta.complete = 1;", STUCK),
    "who is late sends its values": c("tensors", "op->absent = !(contributors >> ts->worker & 1);",
                                      "op->absent = !(contributors >> ts->worker & 1) && !tensors[handle].in;", WRONG),
    "averages are over all workers": c("tensors", "(contributors ? __builtin_popcount(contributors) : 1)", "ts->workers", WRONG),
    "what is new of an offer waits for a time-out that is over": c(
        "offers", "        slot->state = READY;\n        ina_slots_mark(state, index);\n    }\n    return 0;",
        "    }\n    return 0;", STUCK),
}
PLANTS |= {f"quorum: {name}": Plant(p.file, p.old, p.new, p.violation, p.also, "quorum") for name, p in QUORUM.items()}
PLANTS |= {f"atp: {name}": Plant(p.file, p.old, p.new, p.violation, p.also, "atp") for name, p in ATP.items()}


def find(name: str) -> Report:
    """Returns the report of the first run that finds the defect, or of the last."""
    plant = PLANTS[name]
    with tempfile.TemporaryDirectory() as folder, planted(plant, Path(folder)) as programs:
        for seed in range(1, SEEDS + 1):
            report = simulate(programs, seed, plant.protocol)
            if report.violation is not None:
                break
    return report


def simulate(programs: Path, seed: int, protocol: str = "switchml", events: int = EVENTS) -> Report:
    """Simulates one run. ``programs``: the folder of the switch programs."""
    built = compile_program(programs / f"{protocol}.p4", defines=macros(protocol), cflags=["-O1"])
    simulation = Simulation(Program(built.so_path), seed, protocol)
    try:
        return simulation.run(events)
    finally:
        simulation.close()


def plant(name: str) -> Plant:
    """Returns the plant of this name."""
    return PLANTS[name]


def summary(report: Report) -> str:
    """Returns a line about the report."""
    return f"seed {report.seed}: {report.violation or 'nothing'}, {report.events:,} events"
