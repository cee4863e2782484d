"""Demands of a program on a Tofino, as far as its source tells: `ina tofino check`.

`pipelines.py` (pipelines of a program) -> `fields.py` (fields that an expression reads or writes) -> `units.py` (the tables of a
control in order) -> `stages.py` (dependencies between them) -> `stateful.py` and `resources.py` (shapes and sizes) ->
`check.py` (the findings).
"""
