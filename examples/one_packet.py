"""One packet through a P4 switch, all of it in this process. Run it with: python examples/one_packet.py

The switch adds up: each packet carries a number, and comes back with the total so far (one_packet.p4, beside this file). That is
in-network aggregation with everything left out: no loss, no retransmission, one number in place of a gradient.
"""

from pathlib import Path

from ina.p4 import RegisterEntry, Switch, TableEntry, compile

# 1. Compile the P4 program to native code. The first time takes a second, then it is in the cache.
program = compile(Path(__file__).with_suffix(".p4"))

with Switch(program) as switch:
    # 2. Fill its table, as a controller does: replies to the worker with this address leave by port 1.
    switch.insert(TableEntry("workers", {"hdr.ethernet.src": "00:00:00:00:00:01"}, "reply", {"port": 1}))

    # 3. Set a register, as if a packet with the number 2 had come before.
    switch.modify(RegisterEntry("total", 0, 2))

    # 4. Make a frame: destination, source and type of the Ethernet header, then the number 40 in 32 bits.
    frame = bytes.fromhex("000000000002" "000000000001" "88b5") + (40).to_bytes(4, "big")

    # 5. Send it into port 1. What comes back is all that the switch sends because of it, as (port, frame).
    for port, reply in switch.process(1, frame):
        print(f"port {port}: {reply.hex()}, the number {int.from_bytes(reply[14:18], 'big')}")

    # 6. Look at what the switch remembers, and at what it dropped.
    print(f"register total: {switch.register('total')[0]}")

    # 7. A worker that is in no table gets no reply.
    stranger = frame[:6] + bytes.fromhex("000000000009") + frame[12:]
    print(f"a stranger gets {switch.process(1, stranger)}; dropped: {switch.drops()}")
