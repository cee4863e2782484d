"""Demands of a program on a Tofino, as far as its source tells: `ina tofino check`.

`fields.py` (fields that an expression reads or writes) -> `units.py` (pipelines, and the tables of a control in order) ->
`stages.py` (dependencies between them) -> `stateful.py` and `resources.py` (shapes and sizes) -> `check.py` (the findings).
"""
