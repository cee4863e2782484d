"""Loops that are compiled once per level of x86-64 (host/net/kernel.h): the loader's choice changes the speed, never a bit."""

import runpy
import subprocess
import sys

import numpy as np
import pytest
from c_program import INCLUDES
from capabilities import X86_64_LEVELS, need
from cffi import FFI

from ina import codecs
from ina.base import manifest, native, paths

pytestmark = pytest.mark.build
SPECIAL = np.array(
    [0.0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-126, -(2.0**-127), 0.5, -0.5, 1.5, 2.5, -2.5, 2.0**23 + 0.5, 1.0, -1.0,
     np.nextafter(np.float32(1), np.float32(2)), 2.0**126, -(2.0**126), 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, -np.nan],
    np.float32,
)
LANE = native.lib.INA_LANE_INT32
COUNTS = (1, 7, 31, 64, 100, 128, 256, 333)
ROOT = paths.root()
BINDING = ROOT / "host/binding.py"
CODEC = """
int ina_codec_exponent(const float *x, size_t count);
void ina_codec_encode(uint32_t lane, uint8_t *wire, const float *x, size_t count, int exponent, int shift);
void ina_codec_decode(uint32_t lane, float *x, const uint8_t *wire, size_t count, int exponent, int shift, int divisor);
void ina_codec_swap(uint32_t lane, void *to, const void *from, size_t count);
void ina_codec_encode_exact(uint8_t *wire, const float *x, size_t count);
int ina_codec_decode_exact(float *x, const uint8_t *wire, size_t count, int workers, int divisor);
"""

CHECK = """
void ina_check_add(uint32_t lane, uint32_t *check, const uint8_t *wire, size_t count);
void ina_check_encode(uint32_t lane, uint32_t *check, uint8_t *wire, const float *x, size_t count, int exponent, int shift);
void ina_check_decode(uint32_t lane, uint32_t *check, float *x, const uint8_t *wire, size_t count, int exponent, int shift,
                      int divisor);
uint64_t ina_codec_flushed(const float *x, size_t count, int exponent, int shift);
uint64_t ina_codec_replace(float *x, const float *by, size_t count, int exponent, int shift);
"""


@pytest.fixture
def gcc_for_x86():
    need("gcc-x86-64")


def flags(monkeypatch, march: str = "") -> list[str]:
    """The flags that the compiled part is built with."""
    monkeypatch.setenv("INA_MARCH", march)
    monkeypatch.delenv("INA_CFLAGS", raising=False)
    return runpy.run_path(str(BINDING))["compile_flags"]()


def blocks(rng: np.random.Generator):
    """Blocks of every count: bits at random, of like magnitudes, and special values between those."""
    for count in COUNTS:
        yield rng.integers(0, 2**32, count, np.uint32).view(np.float32)
        values = rng.standard_normal(count).astype(np.float32)
        yield values
        mixed = values.copy()
        mixed[rng.integers(0, count, max(1, count // 8))] = rng.choice(SPECIAL)
        yield mixed
    yield SPECIAL


def outcome(ffi: FFI, lib: object) -> bytes:
    """Every byte that the codec makes of the same blocks."""
    rng = np.random.default_rng(11)
    output = bytearray()
    for x in blocks(rng):
        count = len(x)
        wire, back, exact = np.zeros(4 * count, np.uint8), np.zeros(count, np.float32), np.zeros(48 * count, np.uint8)
        px, pw, pb, pe = (ffi.cast(f"{kind} *", array.ctypes.data) for kind, array in
                          (("float", x), ("uint8_t", wire), ("float", back), ("uint8_t", exact)))
        own = lib.ina_codec_exponent(px, count)
        output += own.to_bytes(2, "big", signed=True)
        for exponent in (own, -96, 0, 3, 126, 127):
            for shift in (25, 30):
                lib.ina_codec_encode(LANE, pw, px, count, exponent, shift)
                output += wire.tobytes()
                for divisor in (1, 3):
                    lib.ina_codec_decode(LANE, pb, pw, count, exponent, shift, divisor)
                    output += back.tobytes()
        lib.ina_codec_swap(LANE, pw, px, count)
        lib.ina_codec_swap(LANE, pb, pw, count)
        output += wire.tobytes() + back.tobytes()
        lib.ina_codec_encode_exact(pe, px, count)
        finite = lib.ina_codec_decode_exact(pb, pe, count, 1, 1)
        output += exact.tobytes() + back.tobytes() + bytes([finite])
    return bytes(output)


@pytest.mark.usefixtures("gcc_for_x86")
@pytest.mark.parametrize("level", X86_64_LEVELS)
def test_every_level_of_the_processor_makes_the_same_bytes(tmp_path, monkeypatch, level):
    need(level)
    target = tmp_path / "codec.so"
    source = ["-DINA_KERNEL=", *INCLUDES, f"{ROOT}/host/protocol/codec.c"]  # no choice: this level's alone
    subprocess.run(["gcc", *flags(monkeypatch, level), "-shared", "-fPIC", *source, "-o", target, "-lm"], check=True)
    ffi = FFI()
    ffi.cdef(CODEC)
    assert outcome(ffi, ffi.dlopen(str(target))) == outcome(native.ffi, native.lib)


def splitmix64(count: int) -> np.ndarray:
    """The first numbers of splitmix64 from state 0, of 64 bits (Steele, Lea and Flood, 2014)."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


WEIGHTS = (splitmix64(64) >> np.uint64(32) | np.uint64(1)).reshape(2, 32)  # odd


def words_of(wire: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Check words by their definition (docs/design/protocol.md, "Version and integrity"), added to others."""
    values = wire.view(">u4").astype(np.uint64).reshape(-1, 32)
    sums = np.stack([values.sum(axis=0), values.cumsum(axis=0).sum(axis=0)])
    return (before + (WEIGHTS * sums).sum(axis=1)).astype(np.uint32)


@pytest.mark.usefixtures("gcc_for_x86")
@pytest.mark.parametrize("level", ["", *X86_64_LEVELS])
def test_check_words_are_made_in_one_pass_with_the_codec(tmp_path, monkeypatch, level):
    """`level` "": the loader's choice."""
    if level:
        need(level)
    target, kernel = tmp_path / "check.so", ["-DINA_KERNEL="] if level else []
    folders = [f"-I{ROOT}/{folder}" for folder in manifest.FOLDERS]
    source = [*kernel, *folders, *(f"{ROOT}/host/protocol/{name}.c" for name in ("check", "codec"))]
    subprocess.run(["gcc", *flags(monkeypatch, level), "-shared", "-fPIC", *source, "-o", target, "-lm"], check=True)
    ffi = FFI()
    ffi.cdef(CODEC + CHECK)
    lib = ffi.dlopen(str(target))
    rng = np.random.default_rng(3)
    for count in (32, 64, 96, 128, 256, 1024, 2048):
        x = rng.standard_normal(count).astype(np.float32)
        x[:: count // 16] = rng.choice(SPECIAL[np.abs(SPECIAL) <= 2.0**126], 16)
        wire, plain = np.zeros(4 * count, np.uint8), np.zeros(4 * count, np.uint8)
        out, back, words = np.zeros(count, np.float32), np.zeros(count, np.float32), np.array([5, 2**32 - 1], np.uint32)
        px, po, pb = (ffi.cast("float *", array.ctypes.data) for array in (x, out, back))
        pw, pp = (ffi.cast("uint8_t *", array.ctypes.data) for array in (wire, plain))
        pc = ffi.cast("uint32_t *", words.ctypes.data)
        for exponent, shift, divisor in ((3, 28, 1), (-96, 25, 32), (126, 30, 3)):
            before = words.astype(np.uint64)
            lib.ina_check_encode(LANE, pc, pw, px, count, exponent, shift)
            lib.ina_codec_encode(LANE, pp, px, count, exponent, shift)
            assert (wire == plain).all() and (words == words_of(wire, before)).all()
            wire[:] = rng.integers(0, 256, 4 * count)  # a sum
            before = words.astype(np.uint64)
            lib.ina_check_decode(LANE, pc, po, pw, count, exponent, shift, divisor)
            lib.ina_codec_decode(LANE, pb, pw, count, exponent, shift, divisor)
            assert (out == back).all() and (words == words_of(wire, before)).all()
            before = words.astype(np.uint64)
            lib.ina_check_add(LANE, pc, pw, count)
            assert (words == words_of(wire, before)).all()
            own = x.copy()
            po_own = ffi.cast("float *", own.ctypes.data)
            assert lib.ina_codec_replace(po_own, po, count, exponent, shift) == lib.ina_codec_flushed(px, count, exponent, shift)
            assert (own == out).all()


def test_what_is_built_runs_on_every_processor_unless_an_instruction_set_is_named(monkeypatch):
    assert not [flag for flag in flags(monkeypatch) if flag.startswith("-march")]
    assert "-march=x86-64-v3" in flags(monkeypatch, "x86-64-v3")
    assert "-ffp-contract=off" in flags(monkeypatch)


@pytest.mark.usefixtures("gcc_for_x86")
@pytest.mark.parametrize(
    "file", ["host/protocol/codec.c", "host/protocol/check.c", "host/protocol/ps.c", "ina/worlds/virtual/c/collective.c",
             "ina/p4/runtime/c/egress.c", "ina/p4/runtime/c/outlet.c"]
)
def test_loops_over_values_choose_when_they_are_loaded(tmp_path, monkeypatch, file):
    target = tmp_path / "kernels.o"
    folders = [f"-I{ROOT}/{folder}" for folder in manifest.FOLDERS]
    subprocess.run(["gcc", *flags(monkeypatch), *folders, "-fPIC", "-c", ROOT / file, "-o", target], check=True)
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", target], capture_output=True, text=True, check=True).stdout
    functions = {part.split(">", 1)[0]: part for part in text.split("\n\n") for part in [part.split("<", 1)[-1]]}
    wide = {name for name, code in functions.items() if "%ymm" in code or "%zmm" in code}
    assert wide, "no function of wide registers: the kernels are missing"
    assert all("." in name for name in wide), f"wide registers outside of kernels: {sorted(wide)}"


@pytest.fixture(scope="module")
def oldest(tmp_path_factory):
    """The codecs' loops for the oldest processors, called as Python calls the compiled part: cffi's means, and the library."""
    need("gcc-x86-64")
    target, binding = tmp_path_factory.mktemp("codecs") / "codecs.so", runpy.run_path(str(BINDING))
    files = [*(ROOT / "host/codec").glob("*.c"), ROOT / "host/protocol/codec.c"]
    command = ["gcc", "-march=x86-64", "-DINA_KERNEL=", *binding["compile_flags"](), *INCLUDES, "-shared", "-fPIC"]
    subprocess.run([*command, *map(str, files), "-o", str(target), "-lm"], check=True)
    ffi = FFI()
    for header in binding["HEADERS"]:
        ffi.cdef(binding["declarations"](header))
    return ffi, ffi.dlopen(str(target))


def summed(name: str) -> bytes:
    """Every byte that three workers get of a codec, in two calls, the second an average and with what the first left."""
    rng, each, output = np.random.default_rng(7), [codecs.named(name) for _ in range(3)], bytearray()
    for step in range(2):
        tensors = [(rng.standard_normal(5000) * np.exp2(rng.integers(-9, 9, 5000))).astype(np.float32) for _ in each]
        for tensor in tensors:
            tensor[600:1500] = 0
            tensor[rng.integers(0, 600, 40)] = rng.choice(SPECIAL[np.isfinite(SPECIAL)], 40)
            tensor[4900:4903] = rng.choice(SPECIAL, 3)
        with np.errstate(all="ignore"):
            results = codecs.reduced(each, tensors, average=step == 1, step=step)
        output += b"".join(result.tobytes() for result in results)
    return bytes(output)


@pytest.mark.parametrize("name", [name for name in codecs.names() if name not in ("block", "fpisa")])
def test_every_codec_makes_the_same_bytes_on_the_oldest_processor(oldest, monkeypatch, name):
    """`block` and `fpisa` have no loops of their own; the protocol's are above."""
    expected = summed(name)
    for module in [module for key, module in sys.modules.items() if key.startswith("ina.codecs.")]:
        for attribute, value in zip(("ffi", "lib"), oldest, strict=True):
            if hasattr(module, attribute):
                monkeypatch.setattr(module, attribute, value)
    assert summed(name) == expected


def test_integers_in_lanes_and_factors_are_the_same_on_the_oldest_processor(oldest):
    """Loops that no codec of floats calls: bytes and shorts in lanes, integers in limbs, and times a fraction."""
    rng = np.random.default_rng(5)
    data = rng.integers(0, 256, 8 * 1001, np.uint8)

    def bytes_of(ffi, lib) -> bytes:
        words, sums, products = (np.zeros(2 * 1001, np.int32) for _ in range(3))

        def at(kind: str, array: np.ndarray):
            return ffi.cast(f"{kind} *", array.ctypes.data)

        output = b""
        for bits, workers, flip in ((10, 3, 0), (16, 200, 0x80)):
            lanes = ffi.new("struct ina_lanes *", {"count": 1001, "bits": bits, "workers": workers, "lanes": 32 // bits})
            lib.ina_lanes_pack_bytes(lanes, at("uint8_t", data), flip, at("int32_t", words))
            lib.ina_lanes_sum_bytes(lanes, at("int32_t", words), flip, at("int32_t", sums))
            output += words.tobytes() + sums.tobytes()
            lib.ina_lanes_wrap_bytes(lanes, at("int32_t", words), flip, at("uint8_t", sums))
            output += sums.tobytes()
            lib.ina_lanes_any_bytes(lanes, at("int32_t", words), at("uint8_t", sums))
            output += sums.tobytes()
        lib.ina_lanes_pack_shorts(1001, at("int16_t", data), at("int32_t", words))
        lib.ina_lanes_sum_shorts(1001, at("int32_t", words), at("int16_t", sums))
        lib.ina_fraction_multiply(1001, at("int64_t", data), 3 << 50, 52, at("int64_t", products))
        output += words.tobytes() + sums.tobytes() + products.tobytes()
        limbs = np.zeros(3 * 1001, np.int32)
        lib.ina_integers_split(1001, at("int64_t", data), 3, at("int32_t", limbs))
        output += limbs.tobytes()
        for join, divisor in ((lib.ina_integers_join, ()), (lib.ina_integers_average, (7,))):
            for wide in (limbs, limbs.astype(np.int64)):
                join(1001, at("void", wide), wide is not limbs, 3, *divisor, at("int64_t", products))
                output += products.tobytes()
        return output

    assert bytes_of(*oldest) == bytes_of(native.ffi, native.lib)
