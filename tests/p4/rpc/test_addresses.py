"""Addresses of gRPC servers: HOST:PORT, and Unix sockets with a file (unix:PATH) or abstract (unix-abstract:NAME)."""

from __future__ import annotations

import socket

import pytest

from ina.p4.rpc.connections import Access, check_address
from ina.worlds.deployed.remote import is_refused

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:9559", "switch.example:65535", "unix-host:1", "unix:/run/s1",
                                     "unix:///run/s1", "unix-abstract:s1"])
def test_addresses_for_grpc(address):
    check_address(address)


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "127.0.0.1", "127.0.0.1:", ":9559", "localhost:p4", "localhost:-1",
                                     "unix-host:p4", "unix", "unix:", "unix://", "unix-abstract:"])
def test_addresses_that_grpc_would_make_others_of_are_refused(address):
    with pytest.raises(ValueError, match=f"--bfrt {address}: expected HOST:PORT"):
        check_address(address, "--bfrt")


def listening(kind, folder):
    """Returns a server's socket, and its address."""
    if kind == "tcp":
        server = socket.create_server(("127.0.0.1", 0))
        return server, f"127.0.0.1:{server.getsockname()[1]}"
    server = socket.socket(socket.AF_UNIX)
    server.bind("" if kind == "unix-abstract" else str(folder / "socket"))
    server.listen()
    name = server.getsockname()
    return server, f"unix-abstract:{name[1:].decode()}" if kind == "unix-abstract" else f"unix:{name}"


@pytest.mark.parametrize("kind", ["tcp", "unix", "unix-abstract"])
def test_an_address_is_taken_while_somebody_listens_there_and_refused_after(kind, tmp_path):
    server, address = listening(kind, tmp_path)
    with server:
        assert not is_refused(address)
        with pytest.raises(OSError, match=f"{address}: nothing can be served there: Address already in use"):
            Access(insecure=True).serve(None, address)
    assert is_refused(address)
