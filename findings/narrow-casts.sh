#!/bin/sh
# Casts of float32 to the narrow types of MX and NVFP4: torch 2.13.0 and ml_dtypes 0.6.0 give other numbers for the same value, and
# some of them hide that a value was no number.
#
#   value       type            torch      ml_dtypes
#   infinity    float8_e4m3fn   448        NaN        torch saturates in this one of its fp8 types only:
#   infinity    float8_e4m3fnuz NaN        NaN
#   infinity    float8_e5m2     infinity   infinity
#   465         float8_e4m3fn   448        NaN        464 and less round to 448 in both
#   -1          float8_e8m0fnu  1          NaN        a scale has no sign: torch drops it
#   0           float8_e8m0fnu  2^-127     NaN        nor a zero: torch takes the smallest
#   NaN         float4_e2m1fn   no cast    -0         nor have types of 4 and 6 bits a NaN: ml_dtypes makes it a zero,
#   NaN         float6_e2m3fn   no type    -0         whose sign is the other way round
#   -NaN        float4_e2m1fn   no cast    0
#
# So a check for infinities behind a cast to float8_e4m3fn sees none in torch (overflow of a gradient goes unnoticed), a block of
# NaN in MX or NVFP4 by ml_dtypes becomes zeros unless its scale says so, and a scale that was negative or zero by mistake is one
# that looks right in torch. Found by guessing: NaN, or an error, was expected in each of these.
#
# Takes the two packages from the registry, in a folder that is removed; needs Python 3.10 to 3.13. Ends with status 1 if a result
# is another than above.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 ml_dtypes==0.6.0 numpy
"$folder/venv/bin/python" - <<'PYTHON'
import math
import sys

import ml_dtypes
import numpy as np
import torch

INFINITY, NAN = float("inf"), float("nan")
EXPECTED = [  # value, type, torch, ml_dtypes
    (INFINITY, "float8_e4m3fn", 448.0, NAN), (-INFINITY, "float8_e4m3fn", -448.0, NAN), (465.0, "float8_e4m3fn", 448.0, NAN),
    (464.0, "float8_e4m3fn", 448.0, 448.0), (INFINITY, "float8_e4m3fnuz", NAN, NAN), (INFINITY, "float8_e5m2", INFINITY, INFINITY),
    (-1.0, "float8_e8m0fnu", 1.0, NAN), (0.0, "float8_e8m0fnu", 2.0**-127, NAN),
    (NAN, "float4_e2m1fn", None, -0.0), (NAN, "float6_e2m3fn", None, -0.0), (NAN, "float6_e3m2fn", None, -0.0),
    (math.copysign(NAN, -1), "float4_e2m1fn", None, 0.0), (INFINITY, "float4_e2m1fn", None, 6.0),
]


def same(one, other):
    if one is None or other is None:
        return one is other
    return math.isnan(one) == math.isnan(other) and (math.isnan(one) or (one, math.copysign(1, one)) == (other, math.copysign(1, other)))


print("torch", torch.__version__, "ml_dtypes", ml_dtypes.__version__)
wrong = 0
for value, name, *expected in EXPECTED:
    with np.errstate(all="ignore"):
        theirs = float(np.array(value, np.float32).astype(getattr(ml_dtypes, name)))
    own = None if expected[0] is None else torch.tensor(value).to(getattr(torch, name)).float().item()
    changed = not (same(own, expected[0]) and same(theirs, expected[1]))
    wrong += changed
    print(f"{value!s:>6} as {name:<16} torch {own!s:<24} ml_dtypes {theirs!s:<6}", "CHANGED" if changed else "")
sys.exit(1 if wrong else 0)
PYTHON
