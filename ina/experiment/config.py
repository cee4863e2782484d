"""What an experiment is: plain keys with types and defaults; a typo never runs the wrong experiment."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path


class ConfigError(ValueError):
    """A key that does not exist, or a value that does not fit; the message names file, key and what was expected."""


@dataclass(frozen=True)
class Config:
    """One experiment. Sizes in elements, times in seconds, rates in bits per second unless the name says otherwise."""

    name: str = "fashion-mnist"
    world: str = "local"
    backends: tuple[str, ...] = ("ina", "gloo")
    workers: int = 4
    epochs: int = 2
    steps: int = 0  # stop after this many; 0: whole epochs
    batch: int = 64  # per worker
    lr: float = 0.05
    momentum: float = 0.9
    seed: int = 1
    data: str = ""  # folder of the IDX files; empty: where the distribution's package puts them
    bucket_mb: float = 0.5  # DDP gradient bucket
    program: str = "switchml"
    values: int = 1024  # int32 per packet
    slots: int = 64
    faults: str = ""  # e.g. "loss=0.01,dup=0.01,reorder=0.01,seed=1": on every worker's port, both directions
    timeout: float = 60.0
    compare_step: int = 100  # parameters of the back ends are compared after this many steps

    def __post_init__(self) -> None:
        def need(ok: bool, key: str, expected: str) -> None:
            if not ok:
                raise ConfigError(f"{key} = {getattr(self, key)!r}: expected {expected}")

        need(self.world == "local", "world", "'local'")
        need(len(self.backends) > 0 and set(self.backends) <= {"ina", "gloo"}, "backends", "one or both of ina, gloo")
        need(len(set(self.backends)) == len(self.backends), "backends", "each back end once")
        need(1 <= self.workers <= 32, "workers", "1 to 32")
        need(self.epochs >= 1, "epochs", "at least 1")
        need(self.steps >= 0, "steps", "0 or more")
        need(self.batch >= 1, "batch", "at least 1")
        need(self.lr > 0, "lr", "more than 0")
        need(0 <= self.momentum < 1, "momentum", "0 up to, not including, 1")
        need(self.bucket_mb > 0, "bucket_mb", "more than 0")
        need(self.values in (32, 64, 128, 256, 1024, 2048), "values", "32, 64, 128, 256, 1024 or 2048")
        need(1 <= self.slots <= 8192 and self.slots & (self.slots - 1) == 0, "slots", "a power of two up to 8192")
        need(self.timeout > 0, "timeout", "more than 0 seconds")
        need(self.compare_step >= 1, "compare_step", "at least 1")
        need(self.name != "" and "/" not in self.name, "name", "a name without '/'")

    def as_dict(self) -> dict[str, object]:
        return dataclasses.asdict(self)


FIELDS = {f.name: f for f in dataclasses.fields(Config)}


def _convert(key: str, value: object, where: str) -> object:
    """``value`` as the type of ``Config.key``; strings (from the command line) are parsed."""
    if key not in FIELDS:
        near = difflib.get_close_matches(key, FIELDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(FIELDS)}"
        raise ConfigError(f"{where}: unknown key {key!r}{hint}")
    want = type(FIELDS[key].default)
    try:
        if want is tuple:
            items = value.split(",") if isinstance(value, str) else value
            if not isinstance(items, (list, tuple)):
                raise ValueError
            return tuple(str(item).strip() for item in items)
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError
        if want is int and isinstance(value, float):
            raise ValueError
        return want(value)
    except ValueError:
        raise ConfigError(f"{where}: {key} = {value!r}: expected {want.__name__}") from None


def load(path: Path | None, overrides: dict[str, str] | None = None) -> Config:
    """The experiment of a TOML file (``None``: the defaults), with ``key=value`` overrides from the command line.

    Raises:
        ConfigError: the file cannot be read or parsed, or a key or value is wrong.
    """
    values: dict[str, object] = {}
    if path is not None:
        try:
            table = tomllib.loads(path.read_text())
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: {error}") from None
        values = {key: _convert(key, value, str(path)) for key, value in table.items()}
    for key, value in (overrides or {}).items():
        values[key] = _convert(key, value, "command line")
    return Config(**values)
