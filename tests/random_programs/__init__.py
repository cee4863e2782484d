"""Random P4 programs, judged by an oracle that shares no code with the compiler.

tree.py        syntax tree of a program
generate.py    a random program, its table entries and its packets, from a seed
statements.py  its statements and expressions
render.py      its P4_16 text
oracle.py      its meaning, written from the P4_16 v1.2.5 specification; imports nothing of `ina`
judge.py       compiled program = reference interpreter = oracle?
adapt.py       takes out of a program what BMv2 and p4c are known not to do
bmv2.py        BMv2 = oracle?
shrink.py      the smallest program that still fails
plants.py      defects that the judge must find
"""
