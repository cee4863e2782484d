/* What a controller can see of a switch: every kind of match, counters, registers, groups, clones, digests, packet I/O. */
#include <core.p4>
#include <v1model.p4>

const bit<9> CPU = 510;

@controller_header("packet_in")
header packet_in_t { bit<9> ingress_port; bit<7> reason; }

@controller_header("packet_out")
header packet_out_t { bit<9> egress_port; bit<7> pad; }

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header data_t { bit<32> a; bit<32> b; bit<16> c; bit<8> d; bit<8> e; }

struct headers_t { packet_in_t packet_in; packet_out_t packet_out; ethernet_t ethernet; data_t data; }
struct learn_t { bit<48> mac; bit<9> port; }
struct metadata_t { learn_t learn; }

parser P(packet_in p, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        transition select(sm.ingress_port) { CPU: from_cpu; default: ethernet; }
    }
    state from_cpu { p.extract(hdr.packet_out); transition ethernet; }
    state ethernet {
        p.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) { 0x88b5: data; default: accept; }
    }
    state data { p.extract(hdr.data); transition accept; }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    direct_counter(CounterType.packets_and_bytes) forwarded;
    counter(4, CounterType.packets_and_bytes) seen;
    register<bit<32>>(8) last;
    register<int<16>>(2) signed_values;

    action drop() { mark_to_drop(sm); }
    action forward(bit<9> port) { sm.egress_spec = port; }
    action flood(bit<16> group) { sm.mcast_grp = group; }
    action punt(bit<7> reason) {
        sm.egress_spec = CPU;
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = sm.ingress_port;
        hdr.packet_in.reason = reason;
    }
    action mirror(bit<32> session) { clone(CloneType.I2E, session); }
    action only_default() { }
    action only_entries() { }

    table l2 {
        key = { hdr.ethernet.dst: exact @name("dst"); }
        actions = { drop; forward; flood; punt; }
        default_action = drop();
        counters = forwarded;
        size = 8;
    }
    table route {
        key = { hdr.data.a: lpm @name("a"); }
        actions = { forward; NoAction; @defaultonly only_default; @tableonly only_entries; }
        size = 64;
    }
    table acl {
        key = {
            hdr.data.b: ternary @name("b");
            hdr.data.c: range @name("c");
            hdr.data.d: optional @name("d");
        }
        actions = { drop; mirror; NoAction; }
        size = 64;
    }
    table fixed {
        key = { hdr.data.e: exact @name("e"); }
        actions = { forward; NoAction; }
        const entries = { 1: forward(1); 2: forward(2); }
    }
    table stubborn {
        key = { hdr.data.e: exact @name("e"); }
        actions = { NoAction; drop; }
        const default_action = NoAction();
    }

    apply {
        if (hdr.packet_out.isValid()) {
            sm.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            seen.count((bit<32>)sm.ingress_port & 3);
            meta.learn.mac = hdr.ethernet.src;
            meta.learn.port = sm.ingress_port;
            digest<learn_t>(1, meta.learn);
            l2.apply();
            if (hdr.data.isValid()) {
                last.write((bit<32>)sm.ingress_port & 7, hdr.data.a);
                signed_values.write(0, (int<16>)hdr.data.c);
                route.apply();
                acl.apply();
                fixed.apply();
                stubborn.apply();
            }
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out p, in headers_t hdr) {
    apply { p.emit(hdr.packet_in); p.emit(hdr.ethernet); p.emit(hdr.data); }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
