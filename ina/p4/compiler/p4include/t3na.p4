// Tofino 3's architecture, which this compiler does not know.
#error Tofino 3 (t3na.p4) is not supported: this compiler knows Tofino 1 (tna.p4); leave __TARGET_TOFINO__ undefined or 1
