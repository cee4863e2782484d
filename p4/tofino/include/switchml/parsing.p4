/* Parsers, checksums, deparsers. What does not fit a header is kept for the tables, which count it: `parser_err` is looked at. */
#ifndef INA_TOFINO_PARSING_P4
#define INA_TOFINO_PARSING_P4

#include "headers.p4"

#ifndef WITH_LANES  // the state for frames whose payload has this program's size
#define WITH_LANES lanes
#define EMIT_MORE_LANES
#endif
#ifndef ADDED_LANES  // the state for the values of a packet whose pass adds them
#define ADDED_LANES lanes
#define WITHOUT_VALUES
#endif
#ifndef MORE_PASSES  // states for passes of a program that includes this file
#define MORE_PASSES
#endif
#ifndef WITH_CHECK  // the state for frames with a check header
#define WITH_CHECK exponents_and_check
#endif
#ifndef BEHIND_CHECK_ONLY  // the state behind the check header of a packet that is not to be added
#define BEHIND_CHECK_ONLY accept
#endif
#ifndef MORE_HEADERS  // between the check header and the values
#define MORE_HEADERS
#endif
#ifndef MORE_STATES
#define MORE_STATES
#endif
#ifndef EGRESS_ROUNDS  // what egress looks into of frames that go round, and the state behind the headers
#define EGRESS_ROUNDS
#define BEHIND_HEADERS accept
#define MORE_EGRESS_STATES
#define EMIT_ROUNDS
#define EMIT_LEVELS
#endif

#define IPV4_FIELDS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_len, hdr.ipv4.identification, \
    hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr }

#ifndef CHECK_FIELDS
#define CHECK_FIELDS { hdr.switchml.msg_type, hdr.switchml.overflow, hdr.switchml.size, hdr.switchml.job, hdr.switchml.tsi, \
    hdr.switchml.set, hdr.switchml.checked, hdr.switchml.slot, hdr.exponents.e0, hdr.exponents.e1, \
    hdr.check.version, hdr.check.flags, hdr.check.check0, hdr.check.check1 }
#endif

#ifdef PARSER_FORGETS
const bit<32> LANES_BITS = 32 * LANES;
#endif

parser IngressParser(packet_in packet, out packet_t hdr, out state_t meta, out ingress_intrinsic_metadata_t standard) {
    Checksum() ipv4_checksum;
    Checksum() headers_checksum;

    state start {
        packet.extract(standard);
        packet.advance(PORT_METADATA_SIZE);
        meta.bad_checksum = false;
        meta.bad_headers = false;
        meta.other = 0;
        meta.has_values = 0;
        meta.source = 0;
        transition select(standard.ingress_port) {
            RECIRCULATION_PORT &&& RECIRCULATION_MASK: bridge;
            default: port;
        }
    }
    state port {
        hdr.bridge.setValid();
        hdr.bridge = { Pass.ARRIVE, Op.NOTHING, To.NOBODY, 0, Apart.NOBODY, 0, 0, 0, 0, 0, 0, 0, standard.ingress_port, 0, 0, 0, 0, 0, 0 };
        hdr.flags.setValid();
#define NO_FLAG(i) hdr.flags.f##i = 0;
        FOR_EACH_LANE(NO_FLAG)
        transition ethernet;
    }
    state bridge {
        packet.extract(hdr.bridge);
        packet.extract(hdr.flags);
        transition select(hdr.bridge.pass) {
            Pass.ARRIVE: ethernet;
            Pass.ADD: add;
            Pass.LOAD: load;
            MORE_PASSES
            default: finish;
        }
    }
#define SWITCHML_HEADERS packet.extract(hdr.ethernet); packet.extract(hdr.ipv4); packet.extract(hdr.udp); \
        packet.extract(hdr.switchml); packet.extract(hdr.exponents);
    state add {
        SWITCHML_HEADERS
        transition select(hdr.switchml.checked) {
            1: check_and_lanes;
            default: ADDED_LANES;
        }
    }
    state check_and_lanes {
        packet.extract(hdr.check);
        transition ADDED_LANES;
    }
    state load {
        SWITCHML_HEADERS
        hdr.lanes.setValid();  // they will be
        transition check_if_any;
    }
    state finish {
        SWITCHML_HEADERS
        transition check_if_any;
    }
    state check_if_any {
        transition select(hdr.switchml.checked) {
            1: check_only;
            default: accept;
        }
    }
    state check_only {
        packet.extract(hdr.check);
        transition BEHIND_CHECK_ONLY;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: ipv4;
            OTHER_SOURCES
            default: accept;
        }
    }
    SOURCE_STATES
    state ipv4 {
        packet.extract(hdr.ipv4);
        meta.source = hdr.ipv4.src_addr;
        ipv4_checksum.add(hdr.ipv4);
        meta.bad_checksum = ipv4_checksum.verify();
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.frag_offset, hdr.ipv4.protocol) {
            (4, 5, 0, IPPROTO_UDP): udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            SWITCHML_PORT &&& SWITCHML_MASK: switchml;
            default: accept;
        }
    }
    state switchml {
        packet.extract(hdr.switchml);
        headers_checksum.add(hdr.switchml);
        transition select(hdr.switchml.checked, hdr.switchml.size) {
            (1, _): WITH_CHECK;
            (0, SIZE_NONE): exponents;
            (0, SIZE_CODE): exponents_and_lanes;
            default: accept;
        }
    }
    state exponents_and_check {
        packet.extract(hdr.exponents);
        packet.extract(hdr.check);
        headers_checksum.add(hdr.exponents);
        headers_checksum.add(hdr.check);
        meta.bad_headers = headers_checksum.verify();
        transition select(hdr.check.version, hdr.switchml.size, hdr.switchml.msg_type) {
            (WIRE_VERSION, SIZE_NONE, SWITCHML_PENDING): pending;
            WITHOUT_VALUES
            (WIRE_VERSION, SIZE_CODE, _): WITH_LANES;
            (WIRE_VERSION, _, _): accept;
            (_, SIZE_CODE, _): other_and_lanes;
            default: other;
        }
    }
    state other {
        meta.other = 1;
        transition accept;
    }
    state other_and_lanes {
        meta.other = 1;
        transition WITH_LANES;
    }
    state pending {
        packet.extract(hdr.pending);
        transition accept;
    }
    state exponents {
        packet.extract(hdr.exponents);
        transition accept;
    }
    state exponents_and_lanes {
        packet.extract(hdr.exponents);
        transition WITH_LANES;
    }
    MORE_STATES
    state lanes {
        packet.extract(hdr.lanes);
        meta.has_values = 1;
        transition accept;
    }
#ifdef PARSER_FORGETS
    state passed_over {
        packet.advance(LANES_BITS);
        transition zero_lanes;
    }
    state zero_lanes {
        hdr.lanes.setValid();
#define PUT_ZERO(i) hdr.lanes.v##i = 0;
        FOR_EACH_LANE(PUT_ZERO)
        transition accept;
    }
#endif
}

control IngressDeparser(packet_out packet, inout packet_t hdr, in state_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t deparser_meta) {
    apply {
        packet.emit(hdr.bridge);
        packet.emit(hdr.flags);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.switchml);
        packet.emit(hdr.exponents);
        packet.emit(hdr.check);
        packet.emit(hdr.pending);
        MORE_HEADERS
        packet.emit(hdr.lanes);
        EMIT_MORE_LANES
    }
}

/* Only what the bridge says is addressed is looked into; what else comes here is a broadcast. */
parser EgressParser(packet_in packet, out packet_t hdr, out egress_state_t meta, out egress_intrinsic_metadata_t standard) {
    state start {
        packet.extract(standard);
        packet.extract(hdr.bridge);
        packet.extract(hdr.flags);
        transition select(hdr.bridge.pass) {
            Pass.LEAVE: headers;
            EGRESS_ROUNDS
            default: accept;
        }
    }
    state headers {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.switchml);
        packet.extract(hdr.exponents);
        transition select(hdr.switchml.checked) {
            1: check;
            default: BEHIND_HEADERS;
        }
    }
    state check {
        packet.extract(hdr.check);
        transition BEHIND_HEADERS;
    }
    MORE_EGRESS_STATES
}

control EgressDeparser(packet_out packet, inout packet_t hdr, in egress_state_t meta,
                       in egress_intrinsic_metadata_for_deparser_t deparser_meta) {
    Checksum() ipv4_checksum;
    Checksum() headers_checksum;

    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.hdr_checksum = ipv4_checksum.update(IPV4_FIELDS);
        }
        if (hdr.check.isValid()) {
            hdr.check.headers = headers_checksum.update(CHECK_FIELDS);
        }
        EMIT_ROUNDS
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.switchml);
        packet.emit(hdr.exponents);
        packet.emit(hdr.check);
        EMIT_LEVELS
    }
}

#endif
