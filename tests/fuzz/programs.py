"""Generated programs for c/switch.c: the compiler's C text, and a switch's tables and groups as C beside it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEFINES = {"VALUES": "32", "SLOTS": "4"}
SKIPPED = ("tables", "port", "link")  # pointer fields of a command; tables are in the images


def generate(name: str, folder: Path) -> list[Path]:
    """Generates the program's C files in `folder`."""
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime import Switch

    with tempfile.TemporaryDirectory() as scratch:
        path, defines, admit = _source(name, Path(scratch))
        compiled = compile_program(path, defines=defines, cflags=["-O0"])
        program, tables = folder / f"{name}.c", folder / f"{name}_tables.c"
        shutil.copyfile(compiled.c_path, program)
        with Switch(compiled) as switch:
            commands: list[dict[str, Any]] = []
            plain = switch._execute

            def execute(batch: list[dict[str, Any]], timeout: float = 60.0) -> Any:
                commands.extend(batch)
                return plain(batch, timeout)

            switch._execute = execute
            admit(switch)
            tables.write_text(_tables(switch, commands))
    return [program, tables]


def _source(name: str, folder: Path) -> tuple[Path, dict[str, str] | None, Callable[[Any], object]]:
    """Path, defines, and the function that writes entries."""
    import test_compile_fuzz

    from ina.base.paths import p4_dir

    if name == "switchml":
        return p4_dir() / "switchml.p4", DEFINES, _switchml
    if name == "atp":
        return p4_dir() / "atp.p4", DEFINES, _atp
    if name == "everything":
        return test_compile_fuzz.everything(folder), None, _everything
    if name == "tna-switchml":
        return p4_dir() / "tofino" / "switchml.p4", DEFINES, _tna_switchml
    if name == "tna-everything":
        import test_tna_differential

        return test_tna_differential.everything_source(folder), None, lambda switch: None
    raise ValueError(f"no program {name!r}")


def _everything(switch: Any) -> None:
    from test_compile_fuzz import entries

    from ina.p4.runtime import CloneSessionEntry, MulticastGroupEntry, Replica, insert

    switch.write(entries())
    switch.write(
        insert(
            CloneSessionEntry(1, (Replica(3, 1),), packet_length=100),
            CloneSessionEntry(2, (Replica(4, 1), Replica(5, 2))),
            MulticastGroupEntry(1, (Replica(1, 1), Replica(2, 2), Replica(4, 3))),
        )
    )


def _guarded(switch: Any) -> None:
    """Writes entries that trust frames from ports 1 to 4 and check others."""
    from ina.aggregation.worker import worker_address
    from ina.p4.runtime import TableEntry, insert, modify

    one = worker_address(0, 1)
    hosts = [TableEntry("host", {"standard.ingress_port": 0, "hdr.ethernet.src_addr": one.mac, "source": one.ip}, "is_here")]
    trusted = [TableEntry("guard", {"standard.ingress_port": port}, "trust") for port in range(1, 5)]
    switch.write([*insert(*hosts, *trusted), *modify(TableEntry("guard", {}, "check", is_default=True))])


def _switchml(switch: Any) -> None:
    from test_compile_fuzz import admit

    admit(switch)
    _guarded(switch)


def _atp(switch: Any) -> None:
    from test_compile_fuzz import atp_job

    atp_job(switch)
    _guarded(switch)


def _tna_switchml(switch: Any) -> None:
    """Job 0 of three workers."""
    import switchml_targets

    class Written(switchml_targets.CompiledTarget):
        source = switchml_targets.TnaTarget.source

        def __init__(self) -> None:
            self.values, self.switch = 32, switch

        def reset(self, ports: int) -> None:
            pass

    switchml_targets.World(Written(), ports=5).admit(workers=3)


# ---- as C


def _tables(switch: Any, commands: list[dict[str, Any]]) -> str:
    from ina.base.native import ffi, lib

    lines = ['#include "switch.h"']
    for n, image in enumerate(switch._images):
        parts = [ffi.buffer(part)[:] for part in image.memory[1:]]
        lines += [_words(f"image_{n}_{i}", part) for i, part in enumerate(parts)]
        pointers = ", ".join(f"(const struct ina_table *)image_{n}_{i}" for i in range(len(parts)))
        lines.append(
            f"static const struct {{ uint32_t count, reserved; const struct ina_table *table[{len(parts) or 1}]; }} tables_{n} = "
            f"{{{len(parts)}, 0, {{{pointers or 'NULL'}}}}};"
        )
    images = ", ".join(f"(const struct ina_tables *)&tables_{n}" for n in range(len(switch._images)))
    lines.append(f"const struct ina_tables *const fuzz_tables[] = {{{images}, NULL}};")
    rows = []
    for i, command in enumerate(c for c in commands if c["op"] not in (lib.INA_SET_TABLES, lib.INA_TNA_SET_PIPE_TABLES)):
        fields = [f".{key} = {int(value)}" for key, value in command.items() if key not in ("data", *SKIPPED)]
        if (data := command.get("data")) is not None:
            lines.append(_words(f"data_{i}", ffi.buffer(data)[:]))
            fields.append(f".data = (void *)(uintptr_t)data_{i}")
        rows.append(f"    {{{', '.join(fields)}}},")
    lines += [
        "struct ina_command fuzz_commands[] = {",
        *(rows or ["    {0}"]),
        "};",
        f"const unsigned fuzz_command_count = {len(rows)};",
    ]
    return "\n".join(lines) + "\n"


def _words(name: str, data: bytes) -> str:
    data += bytes(-len(data) % 8)
    words = [f"0x{int.from_bytes(data[at : at + 8], 'little'):x}u" for at in range(0, len(data), 8)]
    text = ", ".join(words) or "0"
    return f"static const uint64_t {name}[] = {{{text}}};"
