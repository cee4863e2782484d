"""Commands that a switch runs between two bursts of packets: fields of struct ina_command (c/switch.h), by name."""

from __future__ import annotations

from ina.base.native import CData

Command = dict[str, int | CData]
Span = dict[str, int]  # the fields of a command that name cells of the program's state: offset, stride, size, count
Memory = list[CData]  # what commands point to, which must live until they have run
