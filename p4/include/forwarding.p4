/* Forwarding: everything that is not aggregation (ARP, IPv4, ...) is switched by destination address, if it comes from whom it says.
 *
 * The guard: hosts believe what comes from the switch's or another host's address. So of a port that is checked only frames are
 * forwarded that say truly who the host there is: its MAC address and, in IPv4 and ARP, its IPv4 address. Trusted are the ports
 * of other switches, which have checked what they send; and all ports as long as nobody says otherwise (default of `guard`). What
 * is aggregated does not come here: who may send that, the programs look up by themselves.
 *
 * The program that includes this has its own headers_t (with `ethernet` and `ipv4`), metadata_t (with `flood` and `source`), and a
 * parser with the cases and states of frame.p4 that find `source`.
 */
#ifndef INA_FORWARDING_P4
#define INA_FORWARDING_P4

control Forwarding(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(512, CounterType.packets) forged;  // by the port that they came by
    bit<32> source = 0;
    bit<1>  checked = 0;
    bit<1>  known = 0;

    action trust() {
        checked = 0;
    }
    action check() {
        checked = 1;
    }
    table guard {
        key = { standard.ingress_port: exact; }
        actions = { trust; check; }
        default_action = trust();
        size = 512;
    }
    action is_here() {
        known = 1;
    }
    table host {
        key = {
            standard.ingress_port: exact;
            hdr.ethernet.src_addr: exact;
            source: exact @name("source");  // 0: neither IPv4 nor ARP, or a host that has no address yet
        }
        actions = { is_here; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    action drop() {
        mark_to_drop(standard);
    }
    action forward(bit<9> port) {
        standard.egress_spec = port;
    }
    action flood(bit<16> group) {
        standard.mcast_grp = group;
        meta.flood = 1;
    }
    table l2 {
        key = { hdr.ethernet.dst_addr: exact; }
        actions = { forward; flood; drop; }
        default_action = drop();
        size = 4096;
    }

    apply {
        if (!hdr.ethernet.isValid()) {
            drop();
        } else {
            guard.apply();
            if (checked == 1) {
                source = meta.source;
                if (hdr.ipv4.isValid()) {
                    source = hdr.ipv4.src_addr;
                }
                host.apply();
            }
            if (checked == known) {
                l2.apply();
            } else {
                forged.count((bit<32>)standard.ingress_port);
                drop();
            }
        }
    }
}

#endif
