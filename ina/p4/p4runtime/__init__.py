"""A P4Runtime 1.5 server for the embedded switch (extra `p4runtime`: gRPC, protobuf, cryptography).

    device = Device(device_id=1)
    device.add_port(1, port)
    with Server(device, "127.0.0.1:9559") as server: ...

From the wire inwards: `service.py` (RPCs, streams) -> `arbitration.py` (who may write) -> `device.py` (pipelines, batches,
packet-in and -out) -> `translate.py` and `codecs.py` (messages to entities of `ina.p4.runtime`
and back). `remote_switch.py` is the controller's side: a switch behind P4Runtime. Importing this
package needs nothing; `device` and `service` need the extra.
"""
