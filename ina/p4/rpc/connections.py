"""Servers' ports and clients' channels, and their options on a command line."""

from __future__ import annotations

import argparse
import errno
import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ina.base.extras import extra
from ina.p4.rpc import folder as folders

OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 20_000),  # silent strangers hold a descriptor each; gRPC gives them two minutes
]
"""gRPC options of servers."""
ELECTION_ID = 1 << 80
"""P4Runtime election id of our controllers: above those with which other clients begin, 1, 10 (finsy) and 2^64 (shells)."""
ABSTRACT = "unix-abstract:"
CONNECTED = 2.0  # seconds for a switch to answer its controller, unless a command says otherwise


@dataclass(frozen=True)
class Access:
    """Authentication of servers and clients: mutual TLS, with the certificates in `folder` (default: `default_folder`); none with
    `insecure`; at a Unix socket, the permissions of its file.
    """

    folder: Path | None = None
    insecure: bool = False

    @classmethod
    def of(cls, args: argparse.Namespace) -> Access:
        """Reads --tls and --insecure."""
        return cls(args.tls, args.insecure)

    @property
    def certificates(self) -> Path:
        return self.folder or folders.default_folder()

    def serve(self, server: Any, address: str) -> str:
        """Makes a gRPC server listen at "HOST:PORT" (port 0: any that is free) or "unix:PATH". Returns the address for clients.

        Only its user can open a socket's file. Raises OSError: nobody can listen there, or the certificates cannot be
        read or made.
        """
        with extra("p4runtime"):
            import grpc
        unix = _path(address)
        try:
            _try_to_bind(address)
        except OSError as error:
            raise OSError(f"{address}: nothing can be served there: {error.strerror or error}") from None
        try:
            if unix is not None:
                before = os.umask(0o111 if self.insecure else 0o177)
                try:
                    server.add_insecure_port(address)
                finally:
                    os.umask(before)
                return address
            if self.insecure:
                port = server.add_insecure_port(address)
            else:
                from ina.p4.rpc import certificates  # needs a package that clients do not

                key, certificate, authority = certificates.of_server(self.certificates, _host(address))
                credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
                port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(f"{address}: nothing can be served there: {error}") from None
        return address if _is_local(address) else f"{address.rpartition(':')[0]}:{port}"

    def connect(self, address: str, options: Sequence[tuple[str, Any]] = ()) -> Any:
        """A channel to a server. Raises OSError: there are no certificates, or the socket is not this user's or root's."""
        with extra("p4runtime"):
            import grpc
        unix = _path(address)
        if unix is not None or self.insecure:
            if unix is not None and not self.insecure:
                _check_owner(unix)
            return grpc.insecure_channel(address, options=options)
        folder = self.certificates
        try:
            authority, certificate, key = folders.read(folder, "ca.crt", "client.crt", "client.key")
        except FileNotFoundError:
            files = ", ".join(folders.FOR_CLIENTS)
            raise FileNotFoundError(
                f"{folder}: no certificates for {address}: copy {files} from the switch's folder, name another folder "
                "with --tls or INA_TLS, or say --insecure if the server uses none"
            ) from None
        if name := folders.server_name(folder):
            options = [*options, ("grpc.ssl_target_name_override", name)]
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority, key, certificate), options=options)

    def described(self, address: str) -> str:
        """Describes the clients that a server admits, for its greeting."""
        if (unix := _path(address)) is not None:
            return f"for whoever may open {unix}"
        if self.insecure:
            return "for whoever reaches it (--insecure)"
        return f"for clients with the certificates in {self.certificates}"

    def hint(self, address: str) -> str:
        """A hint that follows an error about a server that does not answer."""
        if _path(address) is not None:
            return ""
        if self.insecure:
            return " (if the server needs certificates, leave out --insecure)"
        return (f" (if the server refuses the certificates in {self.certificates}, copy them anew from the switch's folder; if "
                "it uses none, say --insecure)")

    def exposed(self, *addresses: str) -> list[str]:
        """The addresses at which servers admit anyone."""
        return [address for address in addresses if address and self.insecure and _path(address) is None]


def add_arguments(parser: argparse.ArgumentParser, *, server: bool = False) -> None:
    """Adds --tls and --insecure, which `Access.of` reads."""
    group = parser.add_mutually_exclusive_group()
    origin = "made where it is missing" if server else "copied from the switch's"
    group.add_argument(
        "--tls", type=Path, metavar="FOLDER",
        help=f"certificates of servers and clients, {origin} (default: INA_TLS, else ~/.config/ina/tls)",
    )
    effect = "let whoever reaches it drive the switch, without encryption" if server else "without certificates and encryption"
    group.add_argument("--insecure", action="store_true", help=effect)


def check_address(address: str, option: str = "--grpc") -> None:
    """Checks an address. Raises ValueError: gRPC itself takes ports modulo 65536, and a missing one as 443."""
    if _is_local(address) and address.partition(":")[2].removeprefix("//"):
        return
    host, _, port = address.rpartition(":")
    if _is_local(address) or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(
            f"{option} {address}: expected HOST:PORT, with a port of 0..65535 (0: any that is free), or unix:PATH"
        )


def places_of(address: str, passive: bool = False) -> list[tuple[int, Any]]:
    """Returns family and place of the sockets of a checked address, of those that listen there with ``passive``. Raises OSError:
    the host has none."""
    if (unix := _path(address)) is not None:
        return [(socket.AF_UNIX, str(unix))]
    if _is_local(address):
        return [(socket.AF_UNIX, "\0" + address.removeprefix(ABSTRACT))]
    host, _, port = address.rpartition(":")
    flags = socket.AI_PASSIVE if passive else 0
    resolved = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=flags)
    return [(family, place) for family, _, _, _, place in resolved]


def _try_to_bind(address: str) -> None:
    """Binds sockets as gRPC is about to, which prints a line of its own where it cannot. Raises OSError: an address of the host
    is taken, or none can be had."""
    places = places_of(address, passive=True)
    if (unix := _path(address)) is not None and unix.is_socket():  # gRPC itself replaces one that is left
        if _answers(unix):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        places = []
    failures = []
    for family, place in places:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC: what is closing is not in the way
            try:
                probe.bind(place)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise
                failures.append(error)
            else:
                if unix is not None:
                    unix.unlink()
    if failures and len(failures) == len(places):
        raise failures[0]


def _answers(path: Path) -> bool:
    """Returns whether somebody serves a Unix socket. gRPC would take its file away from them."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:  # nobody's, another user's, or its queue is full: gRPC says what it can do there
            return False
        return True


def _path(address: str) -> Path | None:
    """The file of a Unix socket; None for other addresses. Abstract sockets have no file, and no owner."""
    return Path(address.removeprefix("unix:").removeprefix("//")) if address.startswith("unix:") else None


def _is_local(address: str) -> bool:
    """Returns whether it is a Unix socket's, with a file or abstract."""
    return address.startswith(("unix:", ABSTRACT))


def _host(address: str) -> str:
    return "" if _is_local(address) else address.rpartition(":")[0].strip("[]")


def _check_owner(path: Path) -> None:
    """Raises PermissionError: the socket is somebody else's, which anyone can bind in a folder that all can write to."""
    try:
        status = path.stat()
    except OSError:
        return  # it may still appear
    if stat.S_ISSOCK(status.st_mode) and status.st_uid not in (os.geteuid(), 0):
        raise PermissionError(f"{path}: this socket is user {status.st_uid}'s, not user {os.geteuid()}'s or root's: say "
                              "--insecure to connect all the same")
