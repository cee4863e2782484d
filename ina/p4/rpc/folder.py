"""A folder of certificates for mutual TLS: anyone with a client's may drive the switch.

    ca.crt                   the authority, which signs all others
    ca.key                   only where certificates are made: on the switch's machine
    client.crt, client.key   for controllers; a copy for each machine
    server.name              the name that certificates of servers carry, whatever their address; without this file, clients
                             compare the address
    server.crt, server.key   the server's, in a folder from elsewhere; without them one is made at each start, with ca.key
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from ina.base import paths

NAME = "ina-switch"
FOR_CLIENTS = ("ca.crt", "client.crt", "client.key", "server.name")


def default_folder() -> Path:
    """`$INA_TLS`, else `ina/tls` in `$XDG_CONFIG_HOME` or `~/.config`."""
    if folder := os.environ.get("INA_TLS"):
        return Path(folder).absolute()
    return paths.config_home() / "ina" / "tls"


def read(folder: Path, *names: str) -> list[bytes]:
    """Contents of files of the folder. Raises OSError: one is missing, or others could read a key or replace a file."""
    contents = []
    if folder.exists():
        _check(folder, 0o022, "others can write in this folder", "go-w")
    for name in names:
        path = folder / name
        try:
            contents.append(path.read_bytes())
        except OSError as error:
            raise type(error)(f"{path}: {error.strerror}: expected a folder with {', '.join(names)}") from None
        if name.endswith(".key"):
            _check(path, 0o077, "others can read this key", "600")
    return contents


def _check(path: Path, forbidden: int, message: str, mode: str) -> None:
    """Raises PermissionError: somebody else could pose as this user."""
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise PermissionError(f"{path}: belongs to user {status.st_uid}, expected user {os.geteuid()} or root: make a copy of "
                              "your own")
    if status.st_mode & forbidden:
        raise PermissionError(f"{path}: {message} (mode {stat.S_IMODE(status.st_mode):o}): chmod {mode} {path}")


def server_name(folder: Path) -> str:
    """Reads server.name, the name that clients expect in the server's certificate; empty: they compare the address."""
    with suppress(FileNotFoundError):
        return (folder / "server.name").read_text(encoding="ascii").strip()
    return ""
