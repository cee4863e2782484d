/* Parsers, checksums, deparsers. What does not fit a header is kept for the tables, which count it: `parser_err` is looked at. */
#ifndef INA_TOFINO_ATP_PARSING_P4
#define INA_TOFINO_ATP_PARSING_P4

#include "headers.p4"

#define IPV4_FIELDS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_len, hdr.ipv4.identification, \
    hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr }

#define CHECK_FIELDS { hdr.atp.msg_type, hdr.atp.resend, hdr.atp.collision, hdr.atp.ecn, hdr.atp.overflow, hdr.atp.exponent, \
    hdr.atp.index, hdr.atp.life, hdr.atp.job, hdr.atp.sequence, hdr.atp.bitmap, \
    hdr.check.version, hdr.check.flags, hdr.check.check0, hdr.check.check1 }

parser IngressParser(packet_in packet, out packet_t hdr, out state_t meta, out ingress_intrinsic_metadata_t standard) {
    Checksum() ipv4_checksum;
    Checksum() headers_checksum;

    state start {
        packet.extract(standard);
        packet.advance(PORT_METADATA_SIZE);
        meta.bad_checksum = false;
        meta.bad_headers = false;
        meta.source = 0;
        meta.drop = Drop.NONE;
        meta.fate = Fate.PASSED;
        meta.downwards = 0;
        meta.sums = 0;
        meta.wants = 0;
        meta.store = 0;
        meta.add = 0;
        meta.kind = 0;
        meta.high = 0;
        meta.low = 0;
        transition select(standard.ingress_port) {
            RECIRCULATION_PORT &&& RECIRCULATION_MASK: bridge;
            default: port;
        }
    }
    state port {
        hdr.bridge.setValid();
        hdr.bridge = { Pass.ARRIVE, Op.NOTHING, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, standard.ingress_port, 0, 0, 0, 0, 0, 0 };
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
            default: finish;
        }
    }
#define NUMBER meta.high = packet.lookahead<number_t>().high; meta.low = packet.lookahead<number_t>().low;
#define ATP_HEADERS packet.extract(hdr.ethernet); packet.extract(hdr.ipv4); packet.extract(hdr.udp); \
        NUMBER packet.extract(hdr.atp); packet.extract(hdr.check);
    state add {
        ATP_HEADERS
        transition lanes;
    }
    state load {
        ATP_HEADERS
        hdr.lanes.setValid();  // they will be
        transition accept;
    }
    state finish {
        ATP_HEADERS
        transition accept;
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
            ATP_PORT &&& ATP_MASK: atp;
            default: accept;
        }
    }
    state atp {  // values of all types are looked for, so that a frame is known to have them
        NUMBER
        packet.extract(hdr.atp);
        packet.extract(hdr.check);
        headers_checksum.add(hdr.atp);
        headers_checksum.add(hdr.check);
        meta.bad_headers = headers_checksum.verify();
        transition select(hdr.check.version, hdr.atp.msg_type, hdr.udp.length) {
            (WIRE_VERSION, _,           UDP_LENGTH + VALUES_LENGTH):  lanes;
            (WIRE_VERSION, _,           UDP_LENGTH + PENDING_LENGTH): pending;
            (_,            Type.DATA,   UDP_LENGTH + VALUES_LENGTH):  lanes;  // of another version: only what v1model's takes off
            (_,            Type.MAXIMA, UDP_LENGTH + VALUES_LENGTH):  lanes;
            default: accept;
        }
    }
    state lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }
    state pending {
        packet.extract(hdr.pending);
        transition accept;
    }
}

control IngressDeparser(packet_out packet, inout packet_t hdr, in state_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t deparser_meta) {
    apply {
        packet.emit(hdr.bridge);
        packet.emit(hdr.flags);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.atp);
        packet.emit(hdr.check);
        packet.emit(hdr.pending);
        packet.emit(hdr.lanes);
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
            default: accept;
        }
    }
    state headers {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.atp);
        packet.extract(hdr.check);
        transition accept;
    }
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
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.atp);
        packet.emit(hdr.check);
    }
}

#endif
