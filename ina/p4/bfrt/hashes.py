"""Hashes of an embedded switch that change at run time: BFRuntime's tables HASH.configure, .algorithm and .compute, and the one
that tells which member of a selector's group a hash chooses.

`configure`: the slices of its fields that a hash reads, sorted by their `order`; two slices with the same order are symmetric:
each is replaced by their exclusive or; one of order 0, or of a field that is left out, does not count. Fields that the program
itself calls symmetric enter as compiled until then: at the later one's place only. `algorithm`: a predefined one by name, or a
CRC by its parameters. Meanings follow p4c's back end (bf-utils/dynamic_hash) and open-p4studio's tests; the rotation is over the
bits of the hash's type.
"""

from __future__ import annotations

from collections.abc import Mapping

from ina.p4.bfrt.info import Table, own_name
from ina.p4.bfrt.rows import Fields, Owner, Row, Where
from ina.p4.compiler.reference.hashes import crc, mirrored
from ina.p4.runtime import EntityError, ProfileGroup, RegisterEntry, Update

HEAD, KINDS = 8, {"identity": 0, "xor": 1, "crc": 2}
ORDER, START, LENGTH = "order", "start_bit", "length"
# By name: width, polynomial, reversed (r), init, final xor (Intel's names; p4c, bf-utils/dynamic_hash)
_CRCS = """
CRC_8 8 07 n 0 0|CRC_8_DARC 8 39 r 0 0|CRC_8_I_CODE 8 1d n fd 0|CRC_8_ITU 8 07 n 55 55|CRC_8_MAXIM 8 31 r 0 0
CRC_8_ROHC 8 07 r ff 0|CRC_8_WCDMA 8 9b r 0 0|CRC_16 16 8005 r 0 0|CRC_16_BYPASS 16 8005 n 0 0|CRC_16_DDS_110 16 8005 n 800d 0
CRC_16_DECT 16 0589 n 1 1|CRC_16_DECT_R 16 0589 n 0 1|CRC_16_DECT_X 16 0589 n 0 0|CRC_16_DNP 16 3d65 r 0 ffff
CRC_16_EN_13757 16 3d65 n 0 ffff|CRC_16_GENIBUS 16 1021 n ffff ffff|CRC_16_MAXIM 16 8005 r 0 ffff
CRC_16_MCRF4XX 16 1021 r ffff 0|CRC_16_RIELLO 16 1021 r b2aa 0|CRC_16_T10_DIF 16 8bb7 n 0 0|CRC_16_TELEDISK 16 a097 n 0 0
CRC_16_USB 16 8005 r ffff ffff|X_25 16 1021 r ffff ffff|XMODEM 16 1021 n 0 0|MODBUS 16 8005 r ffff 0|KERMIT 16 1021 r 0 0
CRC_CCITT_FALSE 16 1021 n ffff 0|CRC_AUG_CCITT 16 1021 n 1d0f 0|CRC_32 32 04c11db7 r ffffffff ffffffff
CRC_32_BZIP2 32 04c11db7 n ffffffff ffffffff|CRC_32C 32 1edc6f41 r ffffffff ffffffff|CRC_32D 32 a833982b r ffffffff ffffffff
CRC_32_MPEG 32 04c11db7 n ffffffff 0|POSIX 32 04c11db7 n 0 ffffffff|CRC_32Q 32 814141ab n 0 0|JAMCRC 32 04c11db7 r ffffffff 0
XFER 32 000000af n 0 0|CRC_64 64 42f0e1eba9ea3693 n 0 0|CRC_64_GO_ISO 64 1b r ffffffffffffffff ffffffffffffffff
CRC_64_WE 64 42f0e1eba9ea3693 n ffffffffffffffff ffffffffffffffff|CRC_64_JONES 64 ad93d23594c935a9 r ffffffffffffffff 0
"""
CRCS = {name: (int(width), int(poly, 16), way == "r", int(init, 16), int(xor, 16))
        for name, width, poly, way, init, xor in map(str.split, _CRCS.strip().replace("|", "\n").splitlines())}
ALGORITHMS = ("IDENTITY", "RANDOM", "XOR", *CRCS)
RANDOM = CRCS["CRC_64_JONES"]  # any fixed function will do: the compiler chooses it


class HashTables:
    """The dynamic hashes of the device's switch."""

    kinds = ("DynHashConfigure", "DynHashAlgorithm", "DynHashCompute", "SelectorGetMember")

    def __init__(self, device: Owner):
        self.device = device
        self.hashes: dict[str, Fields] = {h["name"]: h for h in device.switch.program.layout.get("hashes", ())}
        self._slices: dict[str, Fields] = {}  # as configured, by hash and field
        self._algorithms: dict[str, Row] = {}

    def _hash(self, table: Table) -> Fields:
        return self.hashes[own_name(table.name).rpartition(".")[0]]

    # ---- writing

    def write(self, type_: str, table: Table, row: Row, where: Where) -> None:
        if table.kind not in ("DynHashConfigure", "DynHashAlgorithm"):
            raise EntityError(f"table {table.name} can only be read", "PERMISSION_DENIED")
        settings: Fields = self._slices if table.kind == "DynHashConfigure" else self._algorithms
        hash_, name, before = self._hash(table), self._hash(table)["name"], dict(settings)
        if type_ in ("DELETE", "RESET"):
            settings.pop(name, None)
        elif table.kind == "DynHashConfigure":
            self._slices[name] = dict(row.data)
        else:
            self._algorithms[name] = self._with_defaults(table, row)
        try:
            words = self.words(hash_)
        except EntityError:
            settings.clear()
            settings.update(before)
            raise
        if name not in self._slices and name not in self._algorithms:
            words = [0]  # the program's own
        cells = [RegisterEntry(hash_["configure"], i, word, where.pipe) for i, word in enumerate(words)]
        self.device.write_entities([Update("MODIFY", cell) for cell in [*cells[1:], cells[0]]])

    def _with_defaults(self, table: Table, row: Row) -> Row:
        """The row with default values for the fields that it leaves out. Raises EntityError."""
        common: Fields = {"rotate": 0, "seed": 0, "msb": False, "extend": False}
        if row.action == "pre_defined":
            name = str(row.data.get("algorithm_name") or "RANDOM").upper()
            return Row(row.table, {}, common | dict(row.data) | {"algorithm_name": name}, row.action, True)
        if row.action == "user_defined":
            if not row.data.get("polynomial"):
                raise EntityError(f"table {table.name}: polynomial is missing")
            defaults = {"reverse": False, "init": 0, "final_xor": 0}
            defaults["hash_bit_width"] = max(8, -(-int(row.data["polynomial"]).bit_length() // 8) * 8)
            data = common | defaults | {k: v for k, v in row.data.items() if v is not None}
            return Row(row.table, {}, data, row.action, True)
        raise EntityError(f"table {table.name}: name an action: pre_defined or user_defined")

    # ---- words for the data plane

    def words(self, hash_: Fields) -> list[int]:
        """The configuration of a hash, in the form that ina_dynamic_hash (prelude_tna.h) reads."""
        sources = self._sources(hash_)
        kind, width, numbers, common = self._function(hash_)
        poly, reverse, init, final = numbers
        if reverse:
            poly = mirrored(poly, width)
        rotate = int(common["rotate"]) % hash_["width"]
        flags = width | reverse << 8 | bool(common["msb"]) << 9 | bool(common["extend"]) << 10
        flags |= rotate << 16 | hash_["width"] << 32
        seed = int(common["seed"])
        return [1, KINDS[kind], flags, poly, init, final, seed, len(sources), *(one | other << 32 for one, other in sources)]

    def _function(self, hash_: Fields) -> tuple[str, int, tuple[int, bool, int, int], Fields]:
        """Kind, width, (polynomial, reversed, init, final xor), and the fields that all kinds have."""
        row = self._algorithms.get(hash_["name"])
        if row is None:
            initial = hash_["initial"]
            poly, init, xor = (int(initial.get(n, 0)) for n in ("poly", "init", "xor"))
            common = {"rotate": 0, "seed": 0, "msb": initial.get("msb", False), "extend": initial.get("extend", False)}
            return str(initial["kind"]), int(initial.get("width", 64)), (poly, bool(initial.get("reversed")), init, xor), common
        data = dict(row.data)
        if row.action == "pre_defined":
            name = data["algorithm_name"]
            if name in ("IDENTITY", "XOR"):
                return name.lower(), min(hash_["width"], 32) if name == "XOR" else 64, (0, False, 0, 0), data
            width, poly, way, init, xor = RANDOM if name == "RANDOM" else CRCS[name]
            return "crc", width, (poly, way, init, xor), data
        width = int(data["hash_bit_width"])
        if not 8 <= width <= 64:
            raise EntityError(f"hash {hash_['name']}: hash_bit_width {width}: expected 8..64")
        poly, init, xor = int(data["polynomial"]), int(data["init"]), int(data["final_xor"])
        for name, number in (("polynomial", poly), ("init", init), ("final_xor", xor)):
            if number >> width:
                raise EntityError(f"hash {hash_['name']}: {name} {number:#x} does not fit {width} bits")
        return "crc", width, (poly, bool(data["reverse"]), init, xor), data

    def configured(self, hash_: Fields) -> dict[str, list[dict[str, int]]]:
        """Slices by field."""
        if hash_["name"] in self._slices:
            return self._slices[hash_["name"]]
        orders = list(range(1, len(hash_["fields"]) + 1))
        for i, j in hash_["initial"]["symmetric"]:
            orders[j] = orders[i]
        fields = zip(hash_["fields"], orders, strict=True)
        return {f["name"]: [{ORDER: order, START: 0, LENGTH: f["width"]}] for f, order in fields}

    def _sources(self, hash_: Fields) -> list[tuple[int, int]]:
        """The bits that the hash reads, most significant first: the number of each among the bits of all fields, from 1, and that
        of the bit it is XORed with (0: none)."""
        if hash_["name"] not in self._slices:
            return _compiled_sources(hash_)
        place, at = f"hash {hash_['name']}", 0
        by_order: dict[int, list[list[int]]] = {}
        slices = self._slices[hash_["name"]]
        for f in hash_["fields"]:
            used_bits: set[int] = set()
            for piece in slices.get(f["name"]) or ():
                start, length = piece.get(START) or 0, piece.get(LENGTH)
                if start >= f["width"]:
                    raise EntityError(f"{place}: {f['name']}: start_bit {start}: it has {f['width']} bits")
                end = min(f["width"], start + (f["width"] if length is None else length))
                bits = set(range(start, end))
                if bits & used_bits:
                    raise EntityError(f"{place}: {f['name']}: slices overlap at bit {min(bits & used_bits)}")
                used_bits |= bits
                if piece.get(ORDER):
                    last = at + f["width"]  # of the field's least significant bit
                    by_order.setdefault(piece[ORDER], []).append([last - bit for bit in reversed(range(start, end))])
            at += f["width"]
        sources: list[tuple[int, int]] = []
        for order in sorted(by_order):
            pieces = by_order[order]
            if len(pieces) > 2 or len(set(map(len, pieces))) > 1:
                raise EntityError(f"{place}: order {order}: at most two slices, which are then as long as each other")
            for piece_bits, other in (pieces, pieces[::-1]) if len(pieces) == 2 else [(pieces[0], None)]:
                sources += [(bit, other[i] if other else 0) for i, bit in enumerate(piece_bits)]
        return sources

    # ---- reading

    def read(self, table: Table, row: Row, where: Where) -> list[Row]:
        if table.kind == "SelectorGetMember":
            return [self._member(table, row)]
        hash_ = self._hash(table)
        if table.kind == "DynHashConfigure":
            return [Row(table.name, {}, self.configured(hash_), is_default=True)]
        if table.kind == "DynHashCompute":
            return [Row(table.name, row.key, {"hash_value": self.compute(hash_, row.key)})]
        algorithm = self._algorithms.get(hash_["name"])
        return [algorithm] if algorithm is not None else []  # the program's own has no name here

    def compute(self, hash_: Fields, key: Mapping[str, int]) -> int:
        """The hash of these fields as the data plane computes it, cut to the bits that the program uses."""
        bits = ""
        for f in hash_["fields"]:
            constant = int(f["name"].rpartition("_")[2]) if f["constant"] else 0
            bits += f"{constant if f['constant'] else key.get(f['name'], 0):0{f['width']}b}"
        used: int = hash_["used"]
        return hash_of(self.words(hash_), bits) & (1 << used) - 1

    def _member(self, table: Table, row: Row) -> Row:
        selector = self.device.info.table(table.depends_on[0])
        profile = self.device.info.table(selector.depends_on[0])
        number = row.key.get("$SELECTOR_GROUP_ID", 0)
        groups = self.device.switch.read([ProfileGroup(own_name(profile.name), number)]) if number else []
        members = [m for m, weight in sorted(groups[0].members) for _ in range(weight)] if groups else []
        if not members:
            raise EntityError(f"table {table.name}: group {number} is not there, or has no active member", "NOT_FOUND")
        return Row(table.name, row.key, {"$ACTION_MEMBER_ID": members[row.key.get("hash_value", 0) % len(members)]})


def _compiled_sources(hash_: Fields) -> list[tuple[int, int]]:
    """The bits that the hash reads as the program has it, as `_sources` gives them; a bit with itself is a zero."""
    sources: list[tuple[int, int]] = []
    first_bits: list[int] = []
    for f in hash_["fields"]:
        first_bits.append(len(sources))
        sources += [(len(sources) + bit, 0) for bit in range(1, f["width"] + 1)]
    for i, j in hash_["initial"]["symmetric"]:
        for bit in range(hash_["fields"][i]["width"]):
            (earlier, _), (later, _) = sources[first_bits[i] + bit], sources[first_bits[j] + bit]
            sources[first_bits[i] + bit], sources[first_bits[j] + bit] = (earlier, earlier), (later, earlier)
    return sources


def hash_of(words: list[int], bits: str) -> int:
    """The value of ina_dynamic_hash (prelude_tna.h) for a string of bits."""
    _, kind, flags, poly, init, final, seed, _, *sources = words
    width, result, rotate = flags & 0xFF, flags >> 32 & 0xFF, flags >> 16 & 0xFF
    inputs = [int(bits[(s & 0xFFFFFFFF) - 1]) ^ (int(bits[(s >> 32) - 1]) if s >> 32 else 0) for s in sources]
    unit = width if kind == KINDS["xor"] else 8
    inputs = [0] * (-len(inputs) % unit) + inputs
    mask, value = (1 << width) - 1, int("".join(map(str, inputs)) or "0", 2)
    if kind == KINDS["crc"]:
        reflected = bool(flags >> 8 & 1)
        poly = mirrored(poly, width) if reflected else poly
        value = crc(width, poly, reflected, init, 0, value.to_bytes(len(inputs) // 8, "big"))
    elif kind == KINDS["xor"]:
        total = 0
        while value:
            total, value = total ^ value & mask, value >> width
        value = total
    if kind != KINDS["identity"]:
        value = (value ^ final) & mask
        if result < width and flags >> 9 & 1:
            value >>= width - result
        if flags >> 10 & 1:
            value = sum(value << at for at in range(0, result, width))
    result_mask = (1 << result) - 1
    value &= result_mask
    return ((value << rotate | value >> (result - rotate)) ^ seed) & result_mask
