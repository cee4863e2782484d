"""Demands of a program on a Tofino, as far as its source tells: `ina tofino check`.

`pipelines.py` (pipelines of a program) -> `fields.py` (what an expression reads and writes) -> `units.py` (what a control does,
one table after the other) -> `stages.py` (what must wait for what) -> `stateful.py` and `resources.py` (shapes and sizes) ->
`check.py` (the findings).
"""
