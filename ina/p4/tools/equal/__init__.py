"""`ina p4 equal A B`: two programs get the same packets, one after the other, and must answer alike.

    mapping.py    names of the one by those of the other, and intended differences: a TOML file
    control.py    entries, recorded once and written into both
    shapes.py     the parser's paths -> headers and fields
    values.py     constants that fields are compared with -> values worth a try
    packets.py    random packets, and sequences of them; prior knowledge of a program (ina/aggregation/equal_scenarios.py)
    sides.py      a program, compiled or interpreted, that can go back to an earlier state
    comparison.py the same packet into both -> a difference, or none
    search.py     systematic, then random; then fewer packets, plainer fields
    report.py     the printed counter-example, and STF files to repeat it
"""
