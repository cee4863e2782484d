"""A session of finsy with a switch that runs tests/programs/served/controlled.p4: finsy_session.py ADDRESS P4INFO BLOB
[FOLDER of certificates].

Prints one JSON object for each step; waits for a line on standard input where the other side must send packets.
"""

import asyncio
import json
import sys
from pathlib import Path

import finsy as fy

MAC = 0x020000000001


def say(step, **values):
    print(json.dumps({"step": step, **values}), flush=True)


async def heard():
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def forward(mac, port, **more):
    return fy.P4TableEntry("l2", match=fy.Match(dst=mac), action=fy.Action("forward", port=port), **more)


async def session(address, p4info, blob, folder=None):
    credentials = folder and fy.GRPCCredentialsTLS(
        cacert=folder / "ca.crt", cert=folder / "client.crt", private_key=folder / "client.key")
    options = fy.SwitchOptions(p4info=p4info, p4blob=blob, p4force=True, device_id=1, initial_election_id=10,
                               channel_credentials=credentials)
    async with fy.Switch("s1", address, options) as sw:
        say("connected", primary=sw.is_primary, version=str(sw.p4runtime_version))
        await sw.delete_all()
        written = [
            forward(MAC, 2, metadata=b"mine"),
            fy.P4TableEntry("l2", match=fy.Match(dst=MAC + 1), action=fy.Action("punt", reason=9)),
            fy.P4TableEntry("l2", match=fy.Match(dst=MAC + 2), action=fy.Action("flood", group=5)),
            fy.P4TableEntry("route", match=fy.Match(a=(0x0A000000, 8)), action=fy.Action("NoAction")),
            fy.P4TableEntry("acl", match=fy.Match(b=(0x10, 0xF0), c=(5, 300), d=7), action=fy.Action("drop"), priority=10),
        ]
        await sw.write([
            *(+e for e in written),
            +fy.P4MulticastGroupEntry(5, replicas=[1, (2, 7)]),
            +fy.P4CloneSessionEntry(9, replicas=[3]),
            +fy.P4DigestEntry("learn_t", max_list_size=1, ack_timeout_ns=10**13),
            ~fy.P4TableEntry("route", action=fy.Action("only_default"), is_default_action=True),
        ])
        async with asyncio.timeout(120):
            entries = [e async for e in sw.read(fy.P4TableEntry())]
            groups = [e async for e in sw.read([fy.P4MulticastGroupEntry(), fy.P4CloneSessionEntry()])]
            default = [e async for e in sw.read(fy.P4TableEntry("route", is_default_action=True))]
        say("entries", found=len([e for e in entries if e.table_id != "fixed"]),
            const=len([e for e in entries if e.table_id == "fixed"]), marked_const=len([e for e in entries if e.is_const]),
            same=all(any(w.match == f.match and w.action == f.action and w.metadata == f.metadata for f in entries)
                     for w in written),
            groups=len(groups), default=default[0].action.name)
        try:
            await sw.write([+forward(MAC, 2), +forward(MAC + 9, 1), -forward(MAC + 8, 1)])
        except fy.P4ClientError as error:
            say("errors", code=error.code.name, details={i: e.canonical_code.name for i, e in error.details.items()})

        packets, digests = sw.read_packets(), sw.read_digests("learn_t")
        packet, digest = asyncio.ensure_future(anext(packets)), asyncio.ensure_future(anext(digests))
        await asyncio.sleep(0)
        say("send")
        async with asyncio.timeout(120):
            packet_in, learnt = await packet, await digest
        say("packet", payload=packet_in.payload.hex(), metadata=packet_in.metadata)
        say("digest", data=list(learnt))
        await sw.write([learnt.ack(), fy.P4PacketOut(packet_in.payload, egress_port=3, pad=0)])
        await heard()
        async with asyncio.timeout(120):
            counts = [e.packet_count async for e in sw.read(fy.P4CounterEntry("seen"))]
            direct = [e async for e in sw.read(fy.P4DirectCounterEntry("forwarded", table_entry=fy.P4TableEntry(
                "l2", match=fy.Match(dst=MAC))))]
            await sw.write(~fy.P4CounterEntry("seen", index=0, data=fy.P4CounterData(packet_count=5)))
            five = [e.packet_count async for e in sw.read(fy.P4CounterEntry("seen", index=0))]
        say("state", seen=sum(counts), direct=direct[0].packet_count, five=five)
        extras = {}
        for name, change, pattern in (
            ("register", ~fy.P4RegisterEntry("last", index=3, data=0x1234), fy.P4RegisterEntry("last", index=3)),
            ("cut clones", +fy.P4CloneSessionEntry(10, replicas=[3], packet_length_bytes=20), fy.P4CloneSessionEntry(10)),
        ):
            try:
                await sw.write(change)
                async with asyncio.timeout(120):
                    extras[name] = len([e async for e in sw.read(pattern)])
            except fy.P4ClientError as error:
                extras[name] = error.details[0].canonical_code.name
        say("extras", **extras)

        backup = fy.Switch("s2", address, fy.SwitchOptions(
            device_id=1, initial_election_id=3, channel_credentials=credentials))
        async with backup as other:
            refused = ""
            try:
                await other.write([+forward(MAC + 20, 1)])
            except fy.P4ClientError as error:
                refused = error.code.name
            say("backup", primary=other.is_primary, refused=refused)
        await sw.delete_all()
        async with asyncio.timeout(120):
            say("end", left=len([e async for e in sw.read(fy.P4TableEntry()) if e.table_id != "fixed"]))


asyncio.run(session(sys.argv[1], *map(Path, sys.argv[2:])))
