"""Compiles average.p4 with the bodies of its externs, and sends it some values."""

import struct
from pathlib import Path

from ina.p4 import Switch, compile

FOLDER = Path(__file__).parent

switch = Switch(compile(FOLDER / "average.p4", externs=FOLDER / "average.py"))
for value in (80, 160, 2, 1_000_000):
    [(port, answer)] = switch.process(1, struct.pack("!4I", value, 0, 0, 0))
    _, average, root, rest = struct.unpack("!4I", answer)
    print(f"{value}: average {average}, root {root}, rest {rest}")
