"""A session of p4runtime-shell with a switch that runs tests/programs/served/controlled.p4: shell_session.py ADDRESS P4INFO BLOB
[FOLDER of certificates].

Prints one JSON object for each step; waits for a line on standard input where the other side must send packets.
"""

import json
import sys

import p4runtime_sh.shell as sh
from p4runtime_sh.p4runtime import P4RuntimeWriteException, SSLOptions

MAC = "02:00:00:00:00:01"


OUT, sys.stdout = sys.stdout, sys.stderr  # the shell prints each message that it creates


def say(step, **values):
    print(json.dumps({"step": step, **values}), file=OUT, flush=True)


def entry(table, match, action, priority=0, **params):
    e = sh.TableEntry(table)(action=action)
    for name, value in match.items():
        e.match[name] = value
    for name, value in params.items():
        e.action[name] = value
    if priority:
        e.priority = priority
    return e


def first(messages):
    """Its sniff takes what comes in this time, and has then waited for all of it."""
    for _ in range(400):
        for message in messages.sniff(timeout=0.3):
            return message
    sys.exit("no message came")


credentials = [f"{sys.argv[4]}/{name}" for name in ("ca.crt", "client.crt", "client.key")] if len(sys.argv) > 4 else []
sh.setup(device_id=1, grpc_addr=sys.argv[1], election_id=(0, 10), config=sh.FwdPipeConfig(sys.argv[2], sys.argv[3]),
         ssl_options=SSLOptions(not credentials, *credentials))
say("connected", version=sh.APIVersion())

written = [
    entry("I.l2", {"dst": MAC}, "I.forward", port="2"),
    entry("I.l2", {"dst": "02:00:00:00:00:02"}, "I.punt", reason="9"),
    entry("I.route", {"a": "10.0.0.0/8"}, "NoAction"),
    entry("I.acl", {"b": "0x10&&&0xf0", "c": "5..300", "d": "7"}, "I.drop", priority=10),
]
for e in written:
    e.insert()
default = sh.TableEntry("I.route")(action="I.only_default", is_default=True)
default.modify()
group = sh.MulticastGroupEntry(5)
group.add(1, 1).add(2, 2)
group.insert()
mirror = sh.CloneSessionEntry(9)
mirror.add(3, 1)
mirror.insert()
digest = sh.DigestEntry("learn_t")
digest.max_list_size = 1
digest.ack_timeout_ns = 10**13
digest.insert()

lines = [str(f) for name in ("I.l2", "I.route", "I.acl") for f in sh.TableEntry(name).read()]
const = list(sh.TableEntry("I.fixed").read())
read_default = sh.TableEntry("I.route")
read_default.is_default = True
say("entries", found=len(lines), const=len(const), same=sorted(lines) == sorted(map(str, written)),
    groups=len(list(sh.MulticastGroupEntry().read())) + len(list(sh.CloneSessionEntry().read())),
    default=[str(d.action).count("param") for d in read_default.read()])
errors = []
for change in (written[0].insert, entry("I.l2", {"dst": "02:00:00:00:00:09"}, "I.drop").delete):
    try:
        change()
    except P4RuntimeWriteException as error:
        errors += [e.canonical_code for _, e in error.errors]
say("errors", details=errors)

packets, digests = sh.PacketIn(), sh.DigestList()
say("send")
packet_in = first(packets).packet
say("packet", payload=packet_in.payload.hex(), metadata=[m.value.hex() for m in packet_in.metadata])
learnt = first(digests).digest
say("digest", data=[m.bitstring.hex() for m in learnt.data[0].struct.members])
sh.PacketOut(packet_in.payload, egress_port="3", pad="0").send()
sys.stdin.readline()
counts = [c.packet_count for c in sh.CounterEntry("I.seen").read()]
direct = sh.DirectCounterEntry("I.forwarded")
direct.table_entry.match["dst"] = MAC
counts_direct = [c.packet_count for c in direct.read()]
cell = sh.CounterEntry("I.seen")
cell.index = 0
cell.packet_count = 5
cell.modify()
say("state", seen=sum(counts), direct=counts_direct[0], five=[c.packet_count for c in cell.read()])
for e in (*written, group, mirror, digest):
    e.delete()
say("end", left=len(list(sh.TableEntry("I.l2").read())))
sh.teardown()
