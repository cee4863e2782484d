"""BFRuntime, the interface of Tofino's driver: a client (a `SwitchTarget`), and a server in front of the embedded switch.

    with BfRuntimeTarget("switch:50052") as target:          # a Tofino with its driver, or `ina switch run --bfrt`
        target.add_port(PortConfig(1, 0, "100G", fec="rs"))
        target.write(insert(TableEntry("forward", {...}, "set_port", {"port": 132})))

`messages.py` (the protobuf) -> `info.py` (names, ids and types of tables: the bfrt.json) -> `rows.py` (entries of any table, to
messages and back) -> `client.py` (calls) -> `entities.py` (P4Runtime's terms to rows and back), `ports.py` -> `remote_switch.py`.
For the server, `schema.py` writes a program's bfrt.json, `fixed_tables.py` that of the tables that every switch has, and
`device.py`, `replication.py`, `service.py` serve them. Importing this package needs nothing; its modules need the extra
`p4runtime`.
"""
