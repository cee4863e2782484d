"""BFRuntime's tables of an embedded switch's packet generators: ports, applications, the buffer of packets."""

from __future__ import annotations

from ina.p4.bfrt.info import Table
from ina.p4.bfrt.rows import Fields, Owner, Row, Where
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.parts import PktgenApp

ACTIONS = {"trigger_timer_one_shot": "one_shot", "trigger_timer_periodic": "periodic", "trigger_port_down": "port_down",
           "trigger_recirc_pattern": "pattern"}
APPS, BUFFER = 8, 16384
COUNTERS = ("trigger_counter", "batch_counter", "pkt_counter")
DEFAULTS: Fields = {
    "app_enable": False, "pkt_len": 0, "pkt_buffer_offset": 0, "pipe_local_source_port": 68, "increment_source_port": False,
    "batch_count_cfg": 0, "packets_per_batch_cfg": 0, "ibg": 0, "ibg_jitter": 0, "ipg": 0, "ipg_jitter": 0,
}
PORT = {"pktgen_enable": False, "pattern_matching_enable": False}
PIPE_PORTS, LAST_PORT, CPU = 128, 71, range(64, 68)  # a pipe's ports; those of its CPU


class PktgenTables:
    """The packet generators of the device's switch. Jitter is stored, and has no effect."""

    kinds = ("PktgenPortCfg", "PktgenAppCfg", "PktgenPktBufferCfg")

    def __init__(self, device: Owner):
        self.device, self.switch, self.pipes = device, device.switch, device.pipes
        self._ports: dict[int, Fields] = {}
        self._apps: dict[tuple[int, int], Row] = {}  # by pipe and number
        self._buffers = [bytearray(BUFFER) for _ in range(device.pipes)]

    def _pipes_of(self, where: Where) -> list[int]:
        return list(range(self.pipes)) if where.pipe is None else [where.pipe]

    def write(self, type_: str, table: Table, row: Row, where: Where) -> None:
        if type_ in ("DELETE", "RESET"):
            self._clear(table, row, where)
        elif type_ not in ("MODIFY", "INSERT", "INSERT_OR_MODIFY"):
            raise EntityError(f"table {table.name}: takes MODIFY, not {type_}")
        elif any(k.name not in row.key for k in table.keys):
            raise EntityError(f"table {table.name}: a key is missing; it has: {', '.join(k.name for k in table.keys)}")
        elif table.kind == "PktgenPortCfg":
            self._port(table, row)
        elif table.kind == "PktgenAppCfg":
            for pipe in self._pipes_of(where):
                self._app(table, row, pipe)
        else:
            at, size, packet = row.key["pkt_buffer_offset"], row.key["pkt_buffer_size"], row.data.get("buffer") or b""
            if len(packet) != size or at + size > BUFFER or at % 16:
                raise EntityError(f"table {table.name}: {len(packet)} B for {size} at {at}: as many, at a multiple of 16, "
                                  f"within {BUFFER}")
            for pipe in self._pipes_of(where):
                self.switch.set_pktgen_buffer(pipe, at, packet)
                self._buffers[pipe][at : at + size] = packet

    def _clear(self, table: Table, row: Row, where: Where) -> None:
        if table.kind == "PktgenPortCfg":
            for port in [row.key["dev_port"]] if row.key else list(self._ports):
                self._port(table, Row(table.name, {"dev_port": port}, dict(PORT)))
                self._ports.pop(port, None)
        elif table.kind == "PktgenAppCfg":
            for pipe in self._pipes_of(where):
                for number in [row.key["app_id"]] if row.key else range(APPS):
                    if self._apps.pop((pipe, number), None) is not None:
                        self.switch.set_app(pipe, number, PktgenApp())
                        self.switch.set_app_counters(pipe, number, 0, 0, 0)

    def _port(self, table: Table, row: Row) -> None:
        port = row.key["dev_port"]
        self._check_port(table, port)
        data = {name: value for name, value in row.data.items() if value is not None}
        clear = bool(data.pop("clear_port_down_enable", False))
        self._recirculate(table, port, data.pop("recirculation_enable", self.switch.recirculates(port)))
        config = PORT | self._ports.get(port, {}) | data
        try:
            self.switch.set_pktgen_port(port, config["pktgen_enable"], config["pattern_matching_enable"], clear)
        except EntityError:
            raise EntityError(f"table {table.name}: port {port}: packets are generated at port 68 of a pipe, and patterns looked "
                              "for at 68 to 71") from None
        self._ports[port] = config

    def _check_port(self, table: Table, port: int) -> None:
        if port >= PIPE_PORTS * self.pipes or port % PIPE_PORTS > LAST_PORT:
            raise EntityError(f"table {table.name}: port {port} is none of this switch's {self.pipes} pipes")

    def _recirculate(self, table: Table, port: int, on: bool) -> None:
        """Sets recirculation at port 64 for the four CPU ports of its pipe; others recirculate always (68 to 71), or never."""
        if on == self.switch.recirculates(port):
            return
        pipe, local = divmod(port, PIPE_PORTS)
        if local != CPU[0]:
            raise EntityError(f"table {table.name}: port {port}: recirculation is set at port {CPU[0]} of a pipe, for its ports "
                              f"{CPU[0]} to {CPU[-1]}")
        for other in CPU:
            if self.device.has_port(port := pipe * PIPE_PORTS + other):
                raise EntityError(f"table {table.name}: port {port} is in table $PORT: remove it first", "FAILED_PRECONDITION")
        try:
            self.switch.recirculate(pipe, on)
        except ValueError as error:
            raise EntityError(f"table {table.name}: {error}", "FAILED_PRECONDITION") from None

    def _app(self, table: Table, row: Row, pipe: int) -> None:
        number = row.key["app_id"]
        if number >= APPS:
            raise EntityError(f"table {table.name}: app_id {number}: expected 0..{APPS - 1}")
        before = self._apps.get((pipe, number), Row(table.name))
        action = row.action or before.action or "trigger_timer_one_shot"
        changes = {k: v for k, v in row.data.items() if k not in COUNTERS and v is not None}
        old = before.data if row.action in ("", before.action) else {k: v for k, v in before.data.items() if k in DEFAULTS}
        data = DEFAULTS | dict(old) | changes
        triggers, batches, packets = self.switch.app_counters(pipe, number)
        app = PktgenApp(
            ACTIONS[action], data["app_enable"], data.get("timer_nanosec", 0), data["batch_count_cfg"] + 1,
            data["packets_per_batch_cfg"] + 1, data["ipg"], data["ibg"], data["pkt_len"], data["pkt_buffer_offset"],
            data.get("pattern_value", 0), data.get("pattern_mask", 0), data["pipe_local_source_port"],
            data["increment_source_port"],
        )
        counters = zip([row.data.get(n) for n in COUNTERS], (triggers, batches, packets), strict=True)
        self.switch.set_app_counters(pipe, number, *(now if count is None else count for count, now in counters))
        self.switch.set_app(pipe, number, app)
        self._apps[pipe, number] = Row(table.name, {"app_id": number}, data, action)

    # ---- reading

    def read(self, table: Table, row: Row, where: Where) -> list[Row]:
        if table.kind == "PktgenPktBufferCfg":
            if any(k.name not in row.key for k in table.keys):
                raise EntityError(f"table {table.name}: which bytes? {', '.join(k.name for k in table.keys)}")
            at, size = row.key["pkt_buffer_offset"], row.key["pkt_buffer_size"]
            if at + size > BUFFER or at % 16:
                raise EntityError(f"table {table.name}: {size} B at {at}: at a multiple of 16, within {BUFFER}")
            return [Row(table.name, row.key, {"buffer": bytes(self._buffers[where.pipe or 0][at : at + size])})]
        rows: list[Row] = []
        if table.kind == "PktgenPortCfg":
            number = row.key.get("dev_port")
            if number is not None:  # every port has a configuration, written or not
                self._check_port(table, number)
            for port in self._ports if number is None else [number]:
                data = {"recirculation_enable": self.switch.recirculates(port)} | self._ports.get(port, PORT)
                rows.append(Row(table.name, {"dev_port": port}, data))
        else:
            number = row.key.get("app_id")
            first = self._pipes_of(where)[0]  # pipes that were configured one by one may differ: shows the first
            rows = [self._with_counters(r, where) for (p, n), r in self._apps.items() if p == first and number in (None, n)]
            if number is not None and not rows and number < APPS:
                rows = [self._with_counters(Row(table.name, row.key, dict(DEFAULTS), "trigger_timer_one_shot"), where)]
        if number is not None and not rows:
            raise EntityError(f"table {table.name}: {number} is not there", "NOT_FOUND")
        return rows

    def _with_counters(self, row: Row, where: Where) -> Row:
        """The row with its counters summed over the requested pipes."""
        counts = [self.switch.app_counters(pipe, row.key["app_id"]) for pipe in self._pipes_of(where)]
        totals = dict(zip(COUNTERS, map(sum, zip(*counts, strict=True)), strict=True))
        return Row(row.table, row.key, dict(row.data) | totals, row.action)
