"""Ports as people write them (place on the front panel, speed, FEC, autonegotiation, loopback), and $PORT, $PORT_STAT,
$PORT_HDL_INFO and $PORT_STR_INFO of an embedded switch.

A row of $PORT configures a port: speed, FEC and autonegotiation are stored and returned; loopback is carried out;
enabled sets whether it is up. The front panel is numbered as in Tofino's model: connection n, channel c is device port
(n - 1) // 16 * 128 + (n - 1) % 16 * 4 + c; a real switch's driver has its own map.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ina.p4.bfrt.fixed_tables import STATISTICS
from ina.p4.bfrt.info import Table
from ina.p4.bfrt.rows import Fields, Owner, Row, Where
from ina.p4.runtime.entities import check_existence
from ina.p4.runtime.entity_error import EntityError

SPEEDS = {"1G": 1, "10G": 10, "25G": 25, "40G": 40, "50G": 50, "100G": 100}
LANES = {"1G": 1, "10G": 1, "25G": 1, "40G": 4, "50G": 2, "100G": 4}
FECS = {"none": "BF_FEC_TYP_NONE", "fc": "BF_FEC_TYP_FIRECODE", "rs": "BF_FEC_TYP_REED_SOLOMON"}
# What IEEE 802.3 (clauses 74, 91, 108) and the 25G/50G consortium define for each speed.
FEC_FOR = {"1G": ("none",), "10G": ("none", "fc"), "25G": ("none", "fc", "rs"), "40G": ("none", "fc"),
           "50G": ("none", "fc", "rs"), "100G": ("none", "rs")}
AUTONEG = {"default": "PM_AN_DEFAULT", "on": "PM_AN_FORCE_ENABLE", "off": "PM_AN_FORCE_DISABLE"}
LOOPBACKS = {"none": "BF_LPBK_NONE", "mac-near": "BF_LPBK_MAC_NEAR", "mac-far": "BF_LPBK_MAC_FAR", "pcs-near": "BF_LPBK_PCS_NEAR",
             "serdes-near": "BF_LPBK_SERDES_NEAR", "serdes-far": "BF_LPBK_SERDES_FAR"}
SAME = {"BF_FEC_TYP_FC": "BF_FEC_TYP_FIRECODE", "BF_FEC_TYP_RS": "BF_FEC_TYP_REED_SOLOMON"}  # a driver may use either


@dataclass(frozen=True, slots=True)
class PortConfig:
    """`name`: "1/0", or a device port's number ("68"), where it is not on the front panel. Raises ValueError with the name."""

    name: str
    speed: str = "100G"
    fec: str = "none"
    autoneg: str = "default"
    loopback: str = "none"
    enabled: bool = True

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d+(/[0-3])?", self.name):
            raise ValueError(
                f"port {self.name!r}: expected CONNECTION/CHANNEL as on the front panel (1/0), or a device port's number"
            )
        for key, names in (("speed", SPEEDS), ("fec", FECS), ("autoneg", AUTONEG), ("loopback", LOOPBACKS)):
            if getattr(self, key) not in names:
                raise ValueError(f"port {self.name}: {key} = {getattr(self, key)!r}: expected one of {', '.join(names)}")
        if self.fec not in FEC_FOR[self.speed]:
            raise ValueError(f"port {self.name}: fec = {self.fec!r} does not exist at {self.speed}: expected one of "
                             f"{', '.join(FEC_FOR[self.speed])}")
        channel = int(self.name.partition("/")[2] or 0)
        if "/" in self.name and channel % LANES[self.speed]:
            raise ValueError(f"port {self.name}: {self.speed} takes {LANES[self.speed]} of a connection's four lanes, so it "
                             f"begins at a channel that is a multiple of {LANES[self.speed]}")

    @property
    def lanes(self) -> range:
        """Channels of its connection that it uses."""
        first = int(self.name.partition("/")[2] or 0)
        return range(first, first + LANES[self.speed])

    def row(self, dev_port: int) -> Row:
        return Row("$PORT", {"$DEV_PORT": dev_port}, {
            "$SPEED": f"BF_SPEED_{self.speed}", "$FEC": FECS[self.fec], "$AUTO_NEGOTIATION": AUTONEG[self.autoneg],
            "$LOOPBACK_MODE": LOOPBACKS[self.loopback], "$PORT_ENABLE": self.enabled,
        })


def canonical(value: Any) -> Any:
    """A value of $PORT under the one name that we use for it."""
    return SAME.get(value, value)


def differs(expected: Row, actual: Row) -> str:
    """Describes the fields of a port that differ from those written; empty: none does."""
    fields = ((name, actual.data.get(name), value) for name, value in expected.data.items())
    return ", ".join(f"{name} is {now}, not {value}" for name, now, value in fields if canonical(now) != canonical(value))


# --- tables of ports --------------------------------------------------------------------------------------------------

CONNECTIONS = range(1, 33)
CHANNELS = range(4)
KEY = "$DEV_PORT"
DEFAULTS: Fields = {
    "$SPEED": "BF_SPEED_NONE", "$FEC": "BF_FEC_TYP_NONE", "$N_LANES": 1, "$PORT_ENABLE": False,
    "$AUTO_NEGOTIATION": "PM_AN_DEFAULT", "$LOOPBACK_MODE": "BF_LPBK_NONE",
    "$TX_MTU": 10240, "$RX_MTU": 10240, "$PORT_DIR": "PM_PORT_DIR_DEFAULT",
}


def dev_port(connection: int, channel: int) -> int:
    """A device port by its place on the model's front panel. Raises EntityError: it has no such connection or channel."""
    if connection not in CONNECTIONS or channel not in CHANNELS:
        raise EntityError(f"port {connection}/{channel}: expected a connection of 1..32 and a channel of 0..3", "NOT_FOUND")
    return (connection - 1) // 16 * 128 + (connection - 1) % 16 * 4 + channel


def panel(port: int) -> tuple[int, int] | None:
    """Connection and channel of a device port; None: it is not on the front panel (recirculation, the processor's)."""
    pipe, local = divmod(port, 128)
    return (pipe * 16 + local // 4 + 1, local % 4) if local < 64 and pipe < 2 else None


class PortTables:
    kinds = ("PortConfigure", "PortStat", "PortHdlInfo", "PortStrInfo", "DevConfigure")

    def __init__(self, device: Owner):
        self.switch = device.switch
        self.pipes = device.pipes
        self._loopbacks: set[int] = set()  # loopback ports that exist because of a row
        self._ports: dict[int, Fields] = {}
        self._settings: Fields = {}

    def configured(self, port: int) -> bool:
        return port in self._ports

    def write(self, type_: str, table: Table, row: Row, _where: Where) -> None:
        if table.kind == "PortStat":
            raise EntityError("table $PORT_STAT: the embedded switch's statistics cannot be set", "UNIMPLEMENTED")
        elif table.kind == "DevConfigure":
            # Settings of a driver: stored, and returned
            self._settings = {} if type_ in ("DELETE", "RESET") else self._settings | dict(row.data)
        elif table.kind != "PortConfigure":
            raise EntityError(f"table {table.name} can only be read", "PERMISSION_DENIED")
        elif not row.key and type_ == "DELETE":
            for port in list(self._ports):
                self._delete(port)
        else:
            self._configure(type_, row)

    def _configure(self, type_: str, row: Row) -> None:
        port = row.key.get(KEY)
        if port is None:
            raise EntityError("table $PORT: which port? $DEV_PORT is missing")
        exists = port in self._ports
        if type_ == "INSERT_OR_MODIFY":
            type_ = "MODIFY" if exists else "INSERT"
        check_existence(type_, exists, f"table $PORT: port {port}")
        if port >= 128 * self.pipes:
            raise EntityError(
                f"table $PORT: port {port}: this switch has pipes 0..{self.pipes - 1}, so ports to {128 * self.pipes - 1}"
            )
        if type_ == "DELETE":
            self._delete(port)
            return
        if type_ == "INSERT" and row.data.get("$SPEED", "BF_SPEED_NONE") == "BF_SPEED_NONE":
            raise EntityError(f"table $PORT: port {port}: $SPEED is missing")
        config = self._ports.get(port, DEFAULTS) | dict(row.data)
        self._apply(port, config)
        if row.data.get("$PORT_ENABLE") is not None and port in self.switch.ports:
            self.switch.set_port(port, up=bool(row.data["$PORT_ENABLE"]))
        self._ports[port] = config

    def _delete(self, port: int) -> None:
        self._apply(port, DEFAULTS)
        if port in self.switch.ports:  # the state of a port without configuration
            self.switch.set_port(port, up=True)
        del self._ports[port]

    def _apply(self, port: int, config: Fields) -> None:
        """Sets a port's loopback; adds a loopback port if the switch has no port with this number."""
        loopback = config["$LOOPBACK_MODE"] != "BF_LPBK_NONE"
        try:
            if loopback and port not in self.switch.ports:
                self.switch.add_port(port, loopback=True)
                self._loopbacks.add(port)
            elif not loopback and port in self._loopbacks:
                self.switch.remove_port(port)
                self._loopbacks.remove(port)
            elif loopback and port not in self._loopbacks:
                self.switch.set_port(port, loopback=True)
        except ValueError as error:
            raise EntityError(f"table $PORT: {error}") from None

    def read(self, table: Table, row: Row, _where: Where) -> list[Row]:
        if table.kind == "DevConfigure":
            return [Row(table.name, {}, self._device() | self._settings, is_default=True)]
        if table.kind in ("PortHdlInfo", "PortStrInfo"):
            return self._panel(table, row)
        port = row.key.get(KEY)
        ports = self._ports if table.kind == "PortConfigure" else sorted({*self._ports, *self.switch.ports})
        rows = [self._row(table, p) for p in ports if port in (None, p)]
        rows = [r for r in rows if port is None or port in r.key.values()]
        if port is not None and not rows:
            raise EntityError(f"table {table.name}: port {port} is not there", "NOT_FOUND")
        return rows

    def _device(self) -> Fields:
        front = [dev_port(n, c) for n in CONNECTIONS for c in CHANNELS if dev_port(n, c) < 128 * self.pipes]
        recirculation = [128 * pipe + local for pipe in range(self.pipes) for local in range(68, 72)]
        cpu = 64 if self.pipes == 1 else 192
        return {
            "sku": "BFN-T10-032D", "num_pipes": self.pipes, "num_stages": 12, "num_max_ports": 72 * self.pipes,
            "num_front_ports": len(front), "pcie_cpu_port": cpu, "eth_cpu_port_list": [64, 65, 66, 67],
            "internal_port_list": recirculation, "external_port_list": front, "recirc_port_list": recirculation,
            "intr_based_link_monitoring": False, "flow_learn_intr_mode": False, "lrt_dr_timeout_usec": 0,
            "flow_learn_timeout_usec": 500, "inactive_node_delete": False, "selector_member_order": False,
        }

    def _row(self, table: Table, port: int) -> Row:
        if table.kind == "PortStat":
            return Row(table.name, {KEY: port}, self._statistics(port))
        config = self._ports[port]
        place = panel(port)
        up = config["$PORT_ENABLE"] and (port in self.switch.ports or config["$LOOPBACK_MODE"] != "BF_LPBK_NONE")
        state = {"$IS_VALID": True, "$IS_INTERNAL": place is None, "$PORT_UP": up,
                 "$PORT_NAME": f"{place[0]}/{place[1]}" if place else f"-/{port}",
                 "$CONN_ID": place[0] if place else 0, "$CHNL_ID": place[1] if place else 0}
        return Row(table.name, {KEY: port}, config | state)

    def _statistics(self, port: int) -> dict[str, int]:
        values = dict.fromkeys(STATISTICS, 0)
        if port in self.switch.ports:
            s = self.switch.port_stats(port)
            for direction, packets, octets in (("Received", s.rx_packets, s.rx_bytes), ("Transmitted", s.tx_packets, s.tx_bytes)):
                values[f"$Frames{direction}OK"] = values[f"$Frames{direction}All"] = packets
                total = "$OctetsReceived" if direction == "Received" else "$OctetsTransmittedTotal"
                good = "$OctetsReceivedinGoodFrames" if direction == "Received" else "$OctetsTransmittedwithouterror"
                values[total] = values[good] = octets
        return values

    def _panel(self, table: Table, row: Row) -> list[Row]:
        named = table.kind == "PortStrInfo"
        keys = {dev_port(n, c): {"$PORT_NAME": f"{n}/{c}"} if named else {"$CONN_ID": n, "$CHNL_ID": c}
                for n in CONNECTIONS for c in CHANNELS}
        rows = [Row(table.name, key, {KEY: port}) for port, key in keys.items() if not row.key or key == dict(row.key)]
        if not rows:
            raise EntityError(
                f"table {table.name}: there is no port {'/'.join(str(v) for v in row.key.values())} on the front panel",
                "NOT_FOUND",
            )
        return rows
