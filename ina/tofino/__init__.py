"""On the way to a real Tofino: what a program will ask of it (`ina tofino check`), and the deployment (`ina deploy`).

`program.py` (pipelines of a program) -> `fields.py` (what an expression reads and writes) -> `units.py` (what a control does, one
table after the other) -> `stages.py` (what must wait for what) -> `stateful.py` and `resources.py` (shapes and sizes) ->
`check.py` (the findings). `experiment.py` (the file) -> `plan.py` (every row) -> `deploy.py` (written, read back, taken back)
-> `cli.py`.
"""
