"""Connections of P4Runtime and BFRuntime (gRPC): addresses of servers, and certificates that admit clients.

    access = Access()                                    # mutual TLS, with the certificates in ~/.config/ina/tls
    address = access.serve(server, "10.1.0.1:9559")      # makes them if there are none
    channel = access.connect("10.1.0.1:9559")            # with the client's: ca.crt, client.crt, client.key, server.name

`connections.py`: addresses, servers' ports, clients' channels. `folder.py`: what is in the folder. `certificates.py`: makes them.
`message_classes.py`: makes the classes of both interfaces' messages of their descriptions (compiler/p4info/descriptions.py).
Importing this package needs nothing; its modules need the extra `p4runtime`.
"""
