"""BMv2 as a target of STF commands (`ina.p4.tools.stf_file.Target`), through its command-line client."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import child
from bmv2_switch import Bmv2, Bmv2Error
from capabilities import tool

from ina.p4.runtime.entities import MulticastGroupEntry, Replica, Update

PORTS = 8
TOP = 1 << 20  # BMv2's smallest priority number wins, STF's largest


def compile_sample(source: Path, folder: Path, *flags: str) -> tuple[Path, dict[str, Any]]:
    """(BMv2's JSON, P4Info as JSON) by p4c. Raises Bmv2Error with p4c's messages."""
    config, info = folder / f"{source.stem}.json", folder / f"{source.stem}.p4info.json"
    command = [tool("INA_P4C", "p4c-bm2-ss"), "--Wdisable", *flags, "--p4runtime-files", str(info), "-o", str(config)]
    process = child.run([*command, source])
    if process.returncode or not config.exists():
        raise Bmv2Error(f"p4c: {process.stderr.strip()[-300:]}")
    return config, json.loads(info.read_text())


class Bmv2Target:
    """BMv2 for STF. `p4info` may be any compiler's: only names count. `send` returns no more frames than `expected` announces."""

    def __init__(self, config: Path, p4info: dict[str, Any]) -> None:
        self.p4info = p4info
        self.switch = Bmv2(config, PORTS, marker_table=None)
        program = self.switch.program
        self.tables = {t["name"]: t for p in program["pipelines"] for t in p["tables"]}
        self.groups: set[int] = set()
        self.expected = 0  # frames that `send` waits for

    def close(self) -> None:
        self.switch.close()

    def _say(self, line: str, pattern: str = "") -> str:
        text = self.switch.command(line)
        if "Invalid" in text or "Error" in text or (pattern and not re.search(pattern, text)):
            raise Bmv2Error(f"{line}: {text.strip()}")
        return text

    def has(self, table: str, action: str) -> bool:
        """Tells whether p4c kept the table with this action: it drops what cannot be reached."""
        return table in self.tables and action in self.tables[table]["actions"]

    def insert(self, table: str, match: dict[str, Any], action: str, args: dict[str, int], priority: int) -> Any:
        info = self._named("tables", table)
        words = [self._key(f, match.get(f["name"])) for f in info.get("matchFields", [])]
        ranked = self.tables[table]["match_type"] in ("ternary", "range")
        line = f"table_add {table} {action} {' '.join(words)} => {self._params(action, args)}"
        return int(re.search(r"handle (\d+)", self._say(f"{line} {TOP - priority}" if ranked else line, "handle"))[1])

    def _named(self, section: str, name: str) -> dict[str, Any]:
        return next(m for m in self.p4info.get(section, []) if m["preamble"]["name"] == name)

    def _params(self, action: str, args: dict[str, int]) -> str:
        return " ".join(str(args[p["name"]]) for p in self._named("actions", action).get("params", []))

    @staticmethod
    def _key(info: dict[str, Any], match: Any) -> str:
        full = (1 << int(info["bitwidth"])) - 1
        match info["matchType"]:
            case "EXACT":
                return str(match)
            case "LPM":
                value, length = match or (0, 0)
                return f"{value}/{length}"
            case "TERNARY":
                value, mask = match or (0, 0)
                return f"{value}&&&{mask}"
            case "RANGE":
                low, high = match or (0, full)
                return f"{low}->{high}"
            case "OPTIONAL":
                return "0&&&0" if match is None else f"{match}&&&{full}"
        raise Bmv2Error(f"match kind {info['matchType']}")

    def set_default(self, table: str, action: str, args: dict[str, int]) -> None:
        self._say(f"table_set_default {table} {action} {self._params(action, args)}")

    def clear_tables(self) -> None:
        for table in self.tables:
            self.switch.command(f"table_clear {table}")

    def send(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        return self.switch.exchange(frame, port, self.expected)

    def set_clone_session(self, session: int, port: int | None, group: int | None) -> None:
        self._say(f"mirroring_add {session} {port}" if group is None else f"mirroring_add_mc {session} {group}")

    def set_multicast_group(self, group: int, replicas: list[tuple[int, int]]) -> None:
        entry = MulticastGroupEntry(group, tuple(Replica(port, rid) for port, rid in replicas))
        self.switch.write([Update("MODIFY" if group in self.groups else "INSERT", entry)])
        self.groups.add(group)

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        match = re.search(r"\((\d+) bytes, (\d+) packets\)", self._say(f"counter_read {name} {index}"))
        return int(match[2]), int(match[1])

    def read_direct_counter(self, table: str, entry: int) -> tuple[int, int]:
        counter = next(c["name"] for c in self.switch.program["counter_arrays"] if c.get("binding") == table)
        return self.read_counter(counter, entry)

    def read_registers(self, name: str) -> list[int]:
        return [int(v) for v in self._say(f"register_read {name}", "=").partition("=")[2].split(",")]

    def read_register(self, name: str, index: int, half: int = 0) -> int:
        return int(self._say(f"register_read {name} {index}", "=").partition("=")[2])

    def write_register(self, name: str, index: int, value: int) -> None:
        self._say(f"register_write {name} {index} {value}")

    def configure_meter(self, name: str, index: int, rates: list[tuple[float, int]]) -> None:
        self._say(f"meter_set_rates {name} {index} " + " ".join(f"{rate / 1e6}:{burst}" for rate, burst in rates))

    def digests(self) -> None:
        """Unavailable: BMv2 sends digests over nanomsg, which not every build has."""

    # Action profiles, value sets.

    def add_member(self, profile: str, action: str, args: dict[str, int]) -> int:
        line = f"act_prof_create_member {profile} {action} {self._params(action, args)}"
        return int(re.search(r"handle (\d+)", self._say(line, "handle"))[1])

    def add_group(self, profile: str, members: list[int]) -> int:
        group = int(re.search(r"handle (\d+)", self._say(f"act_prof_create_group {profile}", "handle"))[1])
        for member in members:
            self._say(f"act_prof_add_member_to_group {profile} {member} {group}")
        return group

    def point(
        self, table: str, match: dict[str, Any], *, member: int | None = None, group: int | None = None, priority: int = 0
    ) -> None:
        """Adds an entry that names a member or a group of the table's action profile."""
        words = [self._key(f, match.get(f["name"])) for f in self._named("tables", table).get("matchFields", [])]
        selects = self.tables[table]["type"] == "indirect_ws"
        command = "table_indirect_add_with_group" if group is not None else "table_indirect_add"
        rank = str(TOP - priority) if self.tables[table]["match_type"] in ("ternary", "range") else ""
        assert selects or group is None, f"{table} has no selector"
        self._say(f"{command} {table} {' '.join(words)} => {member if group is None else group} {rank}", "handle")

    def fill_value_set(self, name: str, members: list[int]) -> None:
        for member in members:
            self._say(f"pvs_add {name} {member}")

    def configure_direct_meter(self, table: str, entry: int, rates: list[tuple[float, int]]) -> None:
        meter = next(m["name"] for m in self.switch.program["meter_arrays"] if m.get("binding") == table)
        self.configure_meter(meter, entry, rates)
