/* Forwarding: everything that is not aggregation (ARP, IPv4, ...) is switched by destination address.
 * The program that includes this has its own headers_t (with `ethernet`) and metadata_t (with `flood`).
 */
#ifndef INA_FORWARDING_P4
#define INA_FORWARDING_P4

control Forwarding(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
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
        if (hdr.ethernet.isValid()) {
            l2.apply();
        } else {
            drop();
        }
    }
}

#endif
