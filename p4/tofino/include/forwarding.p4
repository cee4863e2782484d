/* Forwarding: everything that is not aggregation (ARP, IPv4, ...) is switched by destination address, if it comes from whom it says.
 * Names and rules are those of ../../include/forwarding.p4. The program that includes this has `packet_t` (with `ethernet`, `bridge`
 * and `flags`), and `state_t` with the `source` that its parser has found.
 */
#ifndef INA_TOFINO_FORWARDING_P4
#define INA_TOFINO_FORWARDING_P4

control Forwarding(inout packet_t hdr, in state_t meta, inout ingress_intrinsic_metadata_for_deparser_t deparser_meta,
                   inout ingress_intrinsic_metadata_for_tm_t traffic) {
    Counter<bit<32>, bit<9>>(512, CounterType_t.PACKETS) forged;  // by the port that they came by
    bit<1> checked = 0;
    bit<1> known = 0;

    action trust() {
        checked = 0;
    }
    action check() {
        checked = 1;
    }
    table guard {
        key = { hdr.bridge.port: exact @name("standard.ingress_port"); }
        actions = { trust; check; }
        default_action = trust();
        size = 512;
    }
    action is_here() {
        known = 1;
    }
    table host {
        key = {
            hdr.bridge.port: exact @name("standard.ingress_port");
            hdr.ethernet.src_addr: exact;
            meta.source: exact @name("source");
        }
        actions = { is_here; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

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
        if (!hdr.ethernet.isValid()) {
            drop();
        } else {
            guard.apply();
            host.apply();
            if (checked == 1 && known == 0) {
                forged.count(hdr.bridge.port);
                drop();
            } else {
                l2.apply();
            }
        }
    }
}

#endif
