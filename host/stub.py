"""Writes ``ina/_native.pyi``: the types of the compiled part, from the headers that its binding reads.

    python host/stub.py ina/_native.pyi

Whole numbers are ``int``, real ones ``float``; structures and pointers are ``CData``, and so Python's type checker knows
of each function its name, its number of arguments and which of them are numbers.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from cffi import model

BYTES = ("char", "uint8_t", "void")  # pointers to these may be bytes

HEAD = '''"""The compiled part. Written by host/stub.py from its headers: do not edit."""

from collections.abc import Callable, Iterator
from typing import Any, Final, SupportsIndex, overload

from typing_extensions import Buffer

class CData:
    """A C value, or a pointer: its fields, items and what it returns have whatever type C gives them."""

    def __getattr__(self, name: str, /) -> Any: ...
    def __setattr__(self, name: str, value: object, /) -> None: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> Any: ...
    def __setitem__(self, index: SupportsIndex | slice, value: object, /) -> None: ...
    def __call__(self, *arguments: object) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def __int__(self) -> int: ...
    def __add__(self, other: int, /) -> CData: ...
    def __sub__(self, other: int, /) -> CData: ...

class CBuffer:
    """A view of C memory, whose slices are copies."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __getitem__(self, index: int | slice, /) -> bytes: ...
    def __setitem__(self, index: int | slice, value: bytes, /) -> None: ...
    def __len__(self) -> int: ...

class CField:
    type: CType

class CType:
    """A C type: of a pointer or an array ``item``, of a structure ``fields``."""

    item: CType
    fields: list[tuple[str, CField]]

class Ffi:
    """What this project uses of cffi's FFI."""

    NULL: Final[CData]
    errno: int
    def addressof(self, data: CData | Lib, /, *field_or_index: str | int) -> CData: ...
    def buffer(self, data: CData, size: int = -1, /) -> CBuffer: ...
    def callback(self, ctype: CType, function: Callable[..., object], error: object = None,
                 onerror: Callable[..., object] | None = None, /) -> CData: ...
    def cast(self, ctype: str, value: CData | int, /) -> CData: ...
    @overload
    def from_buffer(self, data: Buffer, /) -> CData: ...
    @overload
    def from_buffer(self, ctype: str, data: Buffer, /) -> CData: ...
    def gc(self, data: CData, destructor: Callable[[CData], object], /) -> CData: ...
    def memmove(self, to: CData | Buffer, data: CData | Buffer, size: int, /) -> None: ...
    def new(self, ctype: str, value: object = None, /) -> CData: ...
    def sizeof(self, ctype: str | CData, /) -> int: ...
    def string(self, data: CData, size: int = -1, /) -> bytes: ...
    def typeof(self, data: str | CData, /) -> CType: ...

ffi: Ffi

class Lib:
'''


def python_type(c: Any, argument: bool) -> str:
    """Returns the Python type of a C type; ``argument``: as an argument, where ``char *`` takes bytes, and function pointers
    functions."""
    if isinstance(c, model.VoidType):
        return "None"
    if isinstance(c, model.EnumType) or isinstance(c, model.PrimitiveType) and c.is_integer_type():
        return "int"
    if isinstance(c, model.PrimitiveType) and c.is_float_type():
        return "float"
    if isinstance(c, model.PrimitiveType) and c.get_c_name() == "_Bool":
        return "bool"
    if argument and isinstance(c, model.FunctionPtrType):
        return "CData | Callable[..., object]"
    if argument and isinstance(c, model.PointerType) and c.totype.get_c_name() in BYTES:
        return "CData | bytes"
    return "CData"


def stub(declarations: dict[str, tuple[Any, int]]) -> str:
    """Returns the stub's text from the declarations of cffi's parser, by kind and name."""
    lines = []
    for key, (c, _) in declarations.items():
        kind, _, name = key.partition(" ")
        if kind == "function":
            parameters = "".join(f", {'abcdefghijklmnopqrstuvwxyz'[i]}: {python_type(arg, True)}" for i, arg in enumerate(c.args))
            rest = ", *rest: object" if c.ellipsis else ""
            lines.append(f"    def {name}(self{parameters}, /{rest}) -> {python_type(c.result, False)}: ...")
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
