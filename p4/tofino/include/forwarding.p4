/* Forwarding: everything that is not aggregation (ARP, IPv4, ...) is switched by destination address. The names are those of
 * ../../include/forwarding.p4. The program that includes this has `packet_t` (with `ethernet`, `bridge` and `flags`).
 */
#ifndef INA_TOFINO_FORWARDING_P4
#define INA_TOFINO_FORWARDING_P4

control Forwarding(inout packet_t hdr, inout ingress_intrinsic_metadata_for_deparser_t deparser_meta,
                   inout ingress_intrinsic_metadata_for_tm_t traffic) {
    action drop() {
        deparser_meta.drop_ctl = 1;
    }
    action forward(bit<9> port) {
        traffic.ucast_egress_port = port;
        traffic.bypass_egress = 1;
        hdr.bridge.setInvalid();
        hdr.flags.setInvalid();
    }
    action flood(bit<16> group) {
        traffic.mcast_grp_a = group;
        hdr.bridge.pass = Pass.FLOOD;
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
