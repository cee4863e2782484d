"""X25519 (RFC 7748): two processes agree on a secret that nobody who reads their messages learns.

Integers of Python take time that depends on their values, so a private key is for one agreement only.
"""

from __future__ import annotations

import secrets

SIZE = 32  # bytes of each key, and of the secret
_PRIME = 2**255 - 19
_A24 = 121665  # (486662 - 2) / 4, section 4.1
_BASE = (9).to_bytes(SIZE, "little")


def private() -> bytes:
    """Returns a new private key."""
    return secrets.token_bytes(SIZE)


def public(own: bytes) -> bytes:
    """Returns the public key of the private key ``own``."""
    return multiply(own, _BASE)


def shared(own: bytes, others: bytes) -> bytes:
    """Returns the secret of the private key ``own`` and another's public key. Raises ValueError: that is one with which everybody
    gets the same secret (section 6.1)."""
    secret = multiply(own, others)
    if not any(secret):
        raise ValueError("expected a public key of X25519, got a point of low order")
    return secret


def multiply(scalar: bytes, point: bytes) -> bytes:
    """Returns the function X25519 (section 5): the x coordinate of ``scalar`` times the point with the given one, 32 bytes each,
    little endian."""
    k = int.from_bytes(scalar, "little") & (2**255 - 8) | 2**254
    x = int.from_bytes(point, "little") % 2**255 % _PRIME
    # The pairs are x/z of two points whose difference is `point`: n times it and n + 1 times, for the bits of k so far, n.
    low, high = (1, 0), (x, 1)
    for place in range(254, -1, -1):
        if k >> place & 1:
            high, low = _step(x, high, low)
        else:
            low, high = _step(x, low, high)
    return (low[0] * pow(low[1], _PRIME - 2, _PRIME) % _PRIME).to_bytes(SIZE, "little")


def _step(x: int, one: tuple[int, int], other: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns twice the point ``one``, and ``one`` plus ``other``; ``x``: of their difference."""
    plus, minus = one[0] + one[1], one[0] - one[1]
    square, difference = plus * plus % _PRIME, minus * minus % _PRIME
    four = square - difference
    crossed, across = (other[0] - other[1]) * plus % _PRIME, (other[0] + other[1]) * minus % _PRIME
    total, less = crossed + across, crossed - across
    return ((square * difference % _PRIME, four * (square + _A24 * four) % _PRIME),
            (total * total % _PRIME, x * (less * less % _PRIME) % _PRIME))
