"""The greeting over TCP: both ends show that they have the socket's token, or a pass of it, which neither sends.

    client    ina2 PUBLIC [job:JOB-TOKEN]    a public key of X25519, 64 hexadecimal digits; with a pass, its job's token
    server    ina2 PUBLIC
    client    PROOF                          64 hexadecimal digits
    server    PROOF

From then on every line of either side ends with a space and a code of its text and number (``Seal``). All keys are made of the
token or pass, of the secret on which the two public keys agree, and of all that was sent before, as in SCRAM (RFC 5802) the
proofs are: one fits no other connection, and who only reads learns nothing about keys, nor whether a guess of the token is right.
The client proves first, so who has no token gets nothing from a server by which to test a guess.

Version 1 was one line, ``ina TOKEN``. Both sides of a pair of different versions say at once which of them is older.
"""

from __future__ import annotations

import hmac
import re
import secrets
from hashlib import sha256

from ina.base import tokens, x25519

VERSION = b"ina2"
MOST = len(VERSION) + 1 + 2 * x25519.SIZE + 1 + len(tokens.PASS) + tokens.MOST  # bytes of a line, so that version 1 answers it
CODE = 16  # bytes
WRONG_TOKEN = ("the token of this socket is needed: that of the user who started it, in INA_TOKEN or a copy of its ina.token "
               "(INA_TOKEN_FILE names another file)")
_KEY = re.compile(rb"[0-9a-f]{%d}" % (2 * x25519.SIZE))


class Refused(ValueError):
    """The other end has no such token, or speaks another version. ``code``: as of a reply."""

    def __init__(self, code: str, text: str):
        super().__init__(text)
        self.code = code


class Seal:
    """The keys of one end of a connection, and the numbers of its lines."""

    def __init__(self, root: bytes, server: bool):
        self._root = root
        ends = ("server", "client") if server else ("client", "server")
        self._out, self._in = (self.derive(f"lines of the {end}") for end in ends)
        self._sent = self._received = 0

    def derive(self, purpose: str) -> bytes:
        """Returns 32 bytes for a purpose, the same at both ends."""
        return hmac.digest(self._root, purpose.encode(), "sha256")

    def close(self, line: bytes) -> bytes:
        """Returns a line to send (without its end) with its code."""
        self._sent += 1
        return line + b" " + _code(self._out, self._sent, line)

    def open(self, line: bytes) -> bytes:
        """Returns a received line without its code. Raises ValueError: it is not the next one that the other end sent."""
        text, _, code = line.rpartition(b" ")
        if not hmac.compare_digest(code, _code(self._in, self._received + 1, text)):
            raise ValueError("a line that the other end has not sent, or not now")
        self._received += 1
        return text

    def hide(self, data: bytes) -> str:
        """Returns up to 32 bytes as text that only the other end can read."""
        salt = secrets.token_hex(16)
        return salt + _mixed(data, self.derive(f"hidden {salt}")).hex()

    def find(self, text: str) -> bytes:
        """Returns the bytes that the other end has hidden. Raises ValueError."""
        return _mixed(bytes.fromhex(text[32:]), self.derive(f"hidden {text[:32]}"))


def hidden(seal: Seal | None, data: bytes) -> str:
    """Returns bytes as text for the other end: hidden, where others may read the connection."""
    return seal.hide(data) if seal else data.hex()


def found(seal: Seal | None, text: str) -> bytes:
    """Returns the bytes of ``hidden``. Raises ValueError."""
    return seal.find(text) if seal else bytes.fromhex(text)


class Caller:
    """The client's side. ``access``: the token, or a pass."""

    def __init__(self, access: str):
        self._access, self._private = access, x25519.private()
        name = tokens.named(access)
        self._hello = b" ".join([VERSION, x25519.public(self._private).hex().encode(), *([name.encode()] if name else [])])
        self._proof = b""

    def hello(self) -> bytes:
        return self._hello

    def proof(self, line: bytes) -> tuple[bytes, Seal]:
        """Returns the proof of having the token, from the server's first line. Raises Refused: it is no such line."""
        version, _, key = line.partition(b" ")
        if version != VERSION or not _KEY.fullmatch(key):
            raise Refused("version", "answers the greeting with what is no greeting")
        root = _root(self._access, self._private, key, self._hello + b"\n" + line)
        seal = Seal(root, server=False)
        self._proof = _proof(seal, "server")
        return _proof(seal, "client"), seal

    def check(self, line: bytes) -> None:
        """Checks the server's proof. Raises Refused."""
        if not hmac.compare_digest(line, self._proof):
            raise Refused("token", "does not have the token that this client has")


class Callee:
    """The server's side, from the client's first line. ``token``: the socket's. Raises Refused."""

    def __init__(self, token: str, line: bytes):
        version, _, rest = line.partition(b" ")
        key, _, name = rest.partition(b" ")
        if version == b"ina":
            raise Refused("version", "this client's greeting is of version 1, and has shown its token to all who can read the "
                                     "network; this switch process takes version 2: upgrade ina on the client's machine")
        if version != VERSION and re.fullmatch(rb"ina[0-9]+", version):
            raise Refused("version", f"this client's greeting is of version {version[3:11].decode()}, the switch process's of "
                                     "version 2: upgrade ina on the switch's machine")
        if version != VERSION:
            raise Refused("token", WRONG_TOKEN)
        if not _KEY.fullmatch(key):
            raise Refused("invalid", "greeting: expected a public key of 64 hexadecimal digits")
        self.job_token = tokens.job_named(name)
        access = tokens.pass_for(token, self.job_token) if self.job_token else token
        own = x25519.private()
        self._answer = VERSION + b" " + x25519.public(own).hex().encode()
        self._seal = Seal(_root(access, own, key, line + b"\n" + self._answer), server=True)

    def answer(self) -> bytes:
        return self._answer

    def proof(self, line: bytes) -> tuple[bytes, Seal]:
        """Returns the server's proof, from the client's. Raises Refused: the client has no token."""
        if not hmac.compare_digest(line, _proof(self._seal, "client")):
            raise Refused("token", WRONG_TOKEN)
        return _proof(self._seal, "server"), self._seal


def _root(access: str, own: bytes, others: bytes, sent: bytes) -> bytes:
    """Returns the key of which all others are made. Raises Refused."""
    try:
        shared = x25519.shared(own, bytes.fromhex(others.decode()))
    except ValueError as error:
        raise Refused("invalid", f"greeting: {error}") from None
    return hmac.digest(access.encode(), shared + sha256(sent).digest(), "sha256")


def _proof(seal: Seal, side: str) -> bytes:
    return seal.derive(f"proof of the {side}").hex().encode()


def _code(key: bytes, number: int, line: bytes) -> bytes:
    return hmac.digest(key, number.to_bytes(8, "big") + line, "sha256")[:CODE].hex().encode()


def _mixed(data: bytes, key: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(data, key[: len(data)], strict=True))
