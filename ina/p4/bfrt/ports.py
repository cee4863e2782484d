"""Ports of a real switch, as people write them: place on the front panel, speed, FEC, autonegotiation, loopback."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ina.p4.bfrt.rows import Row

SPEEDS = {"1G": 1, "10G": 10, "25G": 25, "40G": 40, "50G": 50, "100G": 100}
LANES = {"1G": 1, "10G": 1, "25G": 1, "40G": 4, "50G": 2, "100G": 4}
FECS = {"none": "BF_FEC_TYP_NONE", "fc": "BF_FEC_TYP_FIRECODE", "rs": "BF_FEC_TYP_REED_SOLOMON"}
# What IEEE 802.3 (clauses 74, 91, 108) and the 25G/50G consortium define for each speed.
FEC_FOR = {"1G": ("none",), "10G": ("none", "fc"), "25G": ("none", "fc", "rs"), "40G": ("none", "fc"),
           "50G": ("none", "fc", "rs"), "100G": ("none", "rs")}  # fmt: skip
AUTONEG = {"default": "PM_AN_DEFAULT", "on": "PM_AN_FORCE_ENABLE", "off": "PM_AN_FORCE_DISABLE"}
LOOPBACKS = {"none": "BF_LPBK_NONE", "mac-near": "BF_LPBK_MAC_NEAR", "mac-far": "BF_LPBK_MAC_FAR", "pcs-near": "BF_LPBK_PCS_NEAR",
             "serdes-near": "BF_LPBK_SERDES_NEAR", "serdes-far": "BF_LPBK_SERDES_FAR"}  # fmt: skip
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
                             f"{', '.join(FEC_FOR[self.speed])}")  # fmt: skip
        channel = int(self.name.partition("/")[2] or 0)
        if "/" in self.name and channel % LANES[self.speed]:
            raise ValueError(f"port {self.name}: {self.speed} takes {LANES[self.speed]} of a connection's four lanes, so it "
                             f"begins at a channel that is a multiple of {LANES[self.speed]}")  # fmt: skip

    @property
    def lanes(self) -> range:
        """Channels of its connection that it uses."""
        first = int(self.name.partition("/")[2] or 0)
        return range(first, first + LANES[self.speed])

    def row(self, dev_port: int) -> Row:
        return Row("$PORT", {"$DEV_PORT": dev_port}, {
            "$SPEED": f"BF_SPEED_{self.speed}", "$FEC": FECS[self.fec], "$AUTO_NEGOTIATION": AUTONEG[self.autoneg],
            "$LOOPBACK_MODE": LOOPBACKS[self.loopback], "$PORT_ENABLE": self.enabled,
        })  # fmt: skip


def canonical(value: Any) -> Any:
    """A value of $PORT under the one name that we use for it."""
    return SAME.get(value, value)


def differs(expected: Row, actual: Row) -> str:
    """Describes the fields of a port that differ from those written; empty: none does."""
    wrong = []
    for name, value in expected.data.items():
        current = actual.data.get(name)
        if canonical(current) != canonical(value):
            wrong.append(f"{name} is {current}, not {value}")
    return ", ".join(wrong)
