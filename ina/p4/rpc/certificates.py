"""Certificates for a folder that has none (folder.py), and those of servers."""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from ina.base.extras import extra
from ina.p4.rpc.folder import NAME, read

AGE = datetime.timedelta(days=3650)
SKEW = datetime.timedelta(days=1)  # between clocks


def make(folder: Path) -> None:
    """Makes a folder that only its user can read, with an authority and a client's certificate. A folder that exists stays as it
    is, even if another process makes it meanwhile. Raises OSError."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        authority = _Authority.new()
        _write(temporary, "ca.key", authority.key_pem)
        _write(temporary, "ca.crt", authority.pem)
        key, certificate = authority.sign("ina client", client=True)
        _write(temporary, "client.key", key)
        _write(temporary, "client.crt", certificate)
        _write(temporary, "server.name", NAME.encode())
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(folder: Path, name: str, data: bytes) -> None:
    handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def of_server(folder: Path, host: str) -> tuple[bytes, bytes, bytes]:
    """Key, certificate and authority (PEM) of a server that binds `host`; made if there are none. Raises OSError."""
    make(folder)
    if (folder / "server.crt").exists() or not (folder / "ca.key").exists():
        key, certificate, authority = read(folder, "server.key", "server.crt", "ca.crt")
        return key, certificate, authority
    signer, authority = read(folder, "ca.key", "ca.crt")
    try:
        return *_Authority.load(signer, authority).sign("ina switch", names=_names(host)), authority
    except ValueError as error:
        raise OSError(f"{folder}: ca.key and ca.crt are no authority: {error}") from None


def _names(host: str) -> list[str]:
    """Names and addresses by which clients may reach a server that binds `host`."""
    names = {NAME, "localhost", "127.0.0.1", "::1", socket.gethostname(), host}
    if host in ("0.0.0.0", "::"):
        with suppress(OSError):
            names |= {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(socket.gethostname(), None)}
    return sorted(names - {"", "0.0.0.0", "::"})


with extra("p4runtime"):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class _Authority:
    """A certificate authority: its key and certificate."""

    def __init__(self, key: Any, certificate: Any):
        self._key, self._certificate, self.key_pem = key, certificate, _key_pem(key)

    @classmethod
    def new(cls) -> _Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(f"ina {secrets.token_hex(4)}")
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signs certificates and their lists
        builder = _builder(subject, subject, key.public_key()).add_extension(x509.BasicConstraints(True, 0), True)
        return cls(key, builder.add_extension(usage, True).sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, key: bytes, certificate: bytes) -> _Authority:
        """An authority from PEM. Raises ValueError."""
        return cls(serialization.load_pem_private_key(key, None), x509.load_pem_x509_certificate(certificate))

    @property
    def pem(self) -> bytes:
        return bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, common: str, names: list[str] | None = None, client: bool = False) -> tuple[bytes, bytes]:
        """A new key, and its certificate: of a client, or of a server with these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        builder = (
            _builder(_subject(common), self._certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(False, None), True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
        return _key_pem(key), builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _subject(common: str) -> Any:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: Any, issuer: Any, key: Any) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
    return builder.not_valid_before(now - SKEW).not_valid_after(now + AGE)


def _general(name: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: Any) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
