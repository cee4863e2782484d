"""Tools for people who write P4: `ina compile`, `ina stf`, `ina explain`, `ina trace`, `ina p4 equal`."""
