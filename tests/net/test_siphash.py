"""SipHash-2-4 of several messages beside each other: the published values, and those of the model, whatever lies in a batch."""

from __future__ import annotations

import hashlib
import random
import subprocess

import pytest
from c_program import CC, host_source
from capabilities import need
from cffi import FFI
from siphash_model import siphash

pytestmark = pytest.mark.build

KEY = bytes(range(16))
# Of the 64 values for the messages 00, 00 01, ... in the authors' table (vectors_sip64 in vectors.h, github.com/veorq/SipHash).
PUBLISHED = "0226a91002af9775a791b3ec5a48e643f8848d2d5774dea9be3438d5786bb58e"
PAPERS = 0xA129CA6149BE45E5  # of 00 to 0e (Aumasson and Bernstein, 2012, Appendix A)
DECLARED = """
struct ina_siphash_message { const uint8_t *bytes; uint32_t length; };
void ina_siphash_all(const uint64_t key[2], const struct ina_siphash_message *messages, uint32_t n, uint64_t *hashes);
"""


@pytest.fixture(scope="module", params=["chosen", "one by one", "sanitizers"])
def hashes(request, tmp_path_factory):
    """Calls ina_siphash_all with a key and messages, each in memory of its own length: as this processor is, as if it had no
    AVX2, and under a sanitizer."""
    options = {"chosen": [], "one by one": ["-DINA_SIPHASH_PLAIN"],
               "sanitizers": ["-fsanitize=undefined", "-fno-sanitize-recover"]}
    if request.param == "sanitizers":
        need("sanitizers")
    target = tmp_path_factory.mktemp("siphash") / "siphash.so"
    subprocess.run([*CC, "-O3", *options[request.param], "-shared", "-fPIC", host_source("siphash.c"), "-o", target], check=True)
    ffi = FFI()
    ffi.cdef(DECLARED)
    lib = ffi.dlopen(str(target))

    def call(key: bytes, messages: list[bytes]) -> list[int]:
        memory = [ffi.new("uint8_t[]", list(message)) for message in messages]
        batch = ffi.new("struct ina_siphash_message[]", [(own, len(m)) for own, m in zip(memory, messages, strict=True)])
        results = ffi.new("uint64_t[]", len(messages))
        lib.ina_siphash_all([int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")], batch, len(messages), results)
        return list(results)

    return call


def test_every_length_has_the_published_value_alone_and_in_each_lane(hashes):
    for copies in (1, 4, 5, 8, 9, 13, 16):
        values = [hashes(KEY, copies * [bytes(range(length))]) for length in range(64)]
        assert all(len(set(value)) == 1 for value in values)
        table = b"".join(value[0].to_bytes(8, "little") for value in values)
        assert hashlib.sha256(table).hexdigest() == PUBLISHED
        assert values[15][0] == PAPERS


def test_lanes_of_one_length_are_messages_of_their_own(hashes):
    rng = random.Random(1)
    for length in range(65):
        messages = [rng.randbytes(length) for _ in range(11)]
        assert hashes(KEY, messages) == [siphash(KEY, message) for message in messages]


def test_batches_of_any_lengths_are_the_models(hashes):
    rng = random.Random(2)
    for _ in range(60):
        key, messages = rng.randbytes(16), []
        while len(messages) < 70 and rng.random() < 0.9:
            length = rng.choice([0, 1, 7, 8, 9, 16, 63, 255, 256, 257])
            messages += [rng.randbytes(length) for _ in range(rng.choice([1, 2, 4, 5, 7, 8, 9, 17]))]
        assert hashes(key, messages) == [siphash(key, message) for message in messages]
