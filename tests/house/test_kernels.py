"""Loops that are compiled once per level of x86-64 (host/net/kernel.h): the loader's choice changes the speed, never a bit."""

import runpy
import subprocess

import numpy as np
import pytest
from c_program import INCLUDES
from capabilities import X86_64_LEVELS, need
from cffi import FFI

from ina.base import manifest, native, paths

pytestmark = pytest.mark.build
SPECIAL = np.array(
    [0.0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-126, -(2.0**-127), 0.5, -0.5, 1.5, 2.5, -2.5, 2.0**23 + 0.5, 1.0, -1.0,
     np.nextafter(np.float32(1), np.float32(2)), 2.0**126, -(2.0**126), 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, -np.nan],
    np.float32,
)  # fmt: skip
COUNTS = (1, 7, 31, 64, 100, 128, 256, 333)
ROOT = paths.root()
BINDING = ROOT / "host/binding.py"
CODEC = """
int ina_codec_exponent(const float *x, size_t count);
void ina_codec_encode(uint8_t *wire, const float *x, size_t count, int exponent, int shift);
void ina_codec_decode(float *x, const uint8_t *wire, size_t count, int exponent, int shift, int divisor);
void ina_codec_put_int32(uint8_t *wire, const int32_t *x, size_t count);
void ina_codec_get_int32(int32_t *x, const uint8_t *wire, size_t count);
void ina_codec_encode_exact(uint8_t *wire, const float *x, size_t count);
int ina_codec_decode_exact(float *x, const uint8_t *wire, size_t count, int divisor);
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
                          (("float", x), ("uint8_t", wire), ("float", back), ("uint8_t", exact)))  # fmt: skip
        own = lib.ina_codec_exponent(px, count)
        output += own.to_bytes(2, "big", signed=True)
        for exponent in (own, -96, 0, 3, 126, 127):
            for shift in (25, 30):
                lib.ina_codec_encode(pw, px, count, exponent, shift)
                output += wire.tobytes()
                for divisor in (1, 3):
                    lib.ina_codec_decode(pb, pw, count, exponent, shift, divisor)
                    output += back.tobytes()
        lib.ina_codec_put_int32(pw, ffi.cast("int32_t *", px), count)
        lib.ina_codec_get_int32(ffi.cast("int32_t *", pb), pw, count)
        output += wire.tobytes() + back.tobytes()
        lib.ina_codec_encode_exact(pe, px, count)
        finite = lib.ina_codec_decode_exact(pb, pe, count, 1)
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


def test_what_is_built_runs_on_every_processor_unless_an_instruction_set_is_named(monkeypatch):
    assert not [flag for flag in flags(monkeypatch) if flag.startswith("-march")]
    assert "-march=x86-64-v3" in flags(monkeypatch, "x86-64-v3")
    assert "-ffp-contract=off" in flags(monkeypatch)


@pytest.mark.usefixtures("gcc_for_x86")
@pytest.mark.parametrize(
    "file", ["host/protocol/codec.c", "host/protocol/ps.c", "ina/worlds/virtual/c/collective.c", "ina/p4/runtime/c/egress.c",
             "ina/p4/runtime/c/outlet.c"]
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
