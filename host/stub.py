"""Writes ``ina/_native.pyi``: the types of the compiled part, from the headers that its binding reads.

    python host/stub.py ina/_native.pyi

Whole numbers are ``int``, real ones ``float``; structures and pointers are cffi's ``CData``, and so Python's type checker knows
of each function its name, how many arguments it takes and which of them are numbers.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from cffi import model

HEAD = '''"""The compiled part. Written by host/stub.py from its headers: do not edit."""

from typing import Final

from _cffi_backend import _CDataBase as CData
from cffi import FFI

__file__: str
ffi: FFI

class Lib:
'''


def python_type(c: Any, given: bool) -> str:
    """Of a C type; ``given``: as an argument, where bytes serve as ``char *``."""
    if isinstance(c, model.VoidType):
        return "None"
    if isinstance(c, model.EnumType) or isinstance(c, model.PrimitiveType) and c.is_integer_type():
        return "int"
    if isinstance(c, model.PrimitiveType) and c.is_float_type():
        return "float"
    if isinstance(c, model.PrimitiveType) and c.get_c_name() == "_Bool":
        return "bool"
    if given and isinstance(c, model.PointerType) and isinstance(c.totype, model.PrimitiveType) and c.totype.is_char_type():
        return "CData | bytes"
    return "CData"


def stub(declarations: dict[str, tuple[Any, int]]) -> str:
    """The stub's text from what cffi's parser found: declarations by kind and name."""
    lines = []
    for key, (c, _) in declarations.items():
        kind, _, name = key.partition(" ")
        if kind == "function":
            taken = "".join(f", {'abcdefghijklmnopqrstuvwxyz'[i]}: {python_type(arg, True)}" for i, arg in enumerate(c.args))
            rest = ", *rest: object" if c.ellipsis else ""
            lines.append(f"    def {name}(self{taken}, /{rest}) -> {python_type(c.result, False)}: ...")
        elif kind in ("constant", "variable"):
            lines.append(f"    {name}: Final[{python_type(c, False)}]")
        elif isinstance(c, model.EnumType):
            lines += [f"    {name}: Final[int]" for name in c.enumerators]
    return HEAD + "\n".join(sorted(lines)) + "\n\nlib: Lib\n"


def main() -> None:
    binding = runpy.run_path(str(Path(__file__).with_name("binding.py")))
    Path(sys.argv[1]).write_text(stub(binding["ffi"]._parser._declarations))


if __name__ == "__main__":
    main()
