"""X25519, held against the vectors of RFC 7748."""

from __future__ import annotations

import pytest

from ina.base import x25519

pytestmark = pytest.mark.fast

ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")  # section 6.1
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
SECRET = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_alice_and_bob_agree():
    alice, bob = x25519.public(ALICE), x25519.public(BOB)
    assert alice.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert bob.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    assert x25519.shared(ALICE, bob).hex() == x25519.shared(BOB, alice).hex() == SECRET


def test_a_thousand_multiplications():
    """Each is of the result of the one before (section 5.2)."""
    scalar = point = (9).to_bytes(32, "little")
    for i in range(1000):
        scalar, point = x25519.multiply(scalar, point), scalar
        if i == 0:
            assert scalar.hex() == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    assert scalar.hex() == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"


@pytest.mark.parametrize("point", [0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18, 2**255])
def test_points_with_which_everybody_gets_the_same_secret_are_refused(point):
    with pytest.raises(ValueError, match="a point of low order"):
        x25519.shared(x25519.private(), point.to_bytes(32, "little"))


def test_new_keys_agree_and_differ():
    ours, theirs = x25519.private(), x25519.private()
    assert ours != theirs
    assert x25519.shared(ours, x25519.public(theirs)) == x25519.shared(theirs, x25519.public(ours))
