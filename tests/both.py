"""One program in both executions, compiled and interpreted, fed alike: what differs is an error of one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ina.compiler import frontend
from ina.compiler.build import CompiledProgram, compile_program
from ina.compiler.interpreter import CloneSession, Interpreter
from ina.switch import Switch
from ina.switch.entities import CloneSessionEntry, MulticastGroupEntry, Replica, TableEntry, Update

PORTS = range(16)


class Both:
    """`process` runs a frame through both and compares what leaves; `same_state` compares registers and counters."""

    def __init__(self, path: Path, defines: dict[str, str] | None = None, seed: int = 0) -> None:
        self.compiled: CompiledProgram = compile_program(path, defines=defines)
        self.switch = Switch(self.compiled.so_path, seed=seed)
        for port in PORTS:
            self.switch.add_port(port)
        self.interpreter = Interpreter(frontend.load(path, defines=defines), seed)
        self.now = 0

    def insert(self, table: str, match: dict[str, Any], action: str, params: dict[str, int], priority: int = 0) -> None:
        self.switch.write([Update("INSERT", TableEntry(table, match, action, params, priority))])
        self.interpreter.tables[table].insert(match, action, params, priority)

    def default(self, table: str, action: str, params: dict[str, int]) -> None:
        self.switch.write([Update("MODIFY", TableEntry(table, {}, action, params, is_default=True))])
        self.interpreter.tables[table].set_default(action, params)

    def group(self, number: int, replicas: list[tuple[int, int]]) -> None:
        entry = MulticastGroupEntry(number, tuple(Replica(port, rid) for port, rid in replicas))
        self.switch.write([Update("INSERT", entry)])
        self.interpreter.multicast_groups[number] = list(replicas)

    def session(self, number: int, port: int) -> None:
        self.switch.write([Update("INSERT", CloneSessionEntry(number, (Replica(port, 0),)))])
        self.interpreter.clone_sessions[number] = CloneSession(port)

    def process(self, frame: bytes, port: int = 0) -> list[tuple[int, bytes]]:
        self.now += 1_000_000
        expected = self.interpreter.process(frame, port, self.now)
        got = self.switch.step(frame, port, self.now)
        assert sorted(got) == sorted(expected), (
            f"frame {frame.hex()} on port {port}:\n compiled    {[(p, f.hex()) for p, f in got]}\n"
            f" interpreted {[(p, f.hex()) for p, f in expected]}"
        )
        return got

    def same_state(self) -> None:
        for register in self.compiled.layout["registers"]:
            name = register["name"]
            mask = (1 << register["width"]) - 1
            expected = [v & mask for v in self.interpreter.registers[name].values]
            assert [int(v) for v in self.switch.register(name)] == expected, name
        for counter in self.compiled.layout["counters"]:
            if counter["table"] is None:
                name = counter["name"]
                expected = self.interpreter.counters[name]
                cells = self.switch.counter(name)
                if counter["type"] != "bytes":
                    assert [int(c[0]) for c in cells] == list(expected.packets), name
                if counter["type"] != "packets":
                    assert [int(c[1]) for c in cells] == list(expected.octets), name

    def close(self) -> None:
        self.switch.close()
