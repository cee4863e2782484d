/* Parsers, checksums, deparsers. What does not fit a header is kept for the tables, which count it: `parser_err` is looked at. */
#ifndef INA_TOFINO_PARSING_P4
#define INA_TOFINO_PARSING_P4

#include "headers.p4"

#define IPV4_FIELDS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_len, hdr.ipv4.identification, \
    hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr }

parser IngressParser(packet_in packet, out packet_t hdr, out state_t meta, out ingress_intrinsic_metadata_t standard) {
    Checksum() ipv4_checksum;

    state start {
        packet.extract(standard);
        packet.advance(PORT_METADATA_SIZE);
        meta.bad_checksum = false;
        meta.source = 0;
        transition select(standard.ingress_port) {
            RECIRCULATION_PORT &&& RECIRCULATION_MASK: bridge;
            default: port;
        }
    }
    state port {
        hdr.bridge.setValid();
        hdr.bridge = { Pass.ARRIVE, Op.NOTHING, To.NOBODY, 0, 0, 0, 0, 0, 0, standard.ingress_port, 0, 0, 0, 0, 0, 0 };
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
#define SWITCHML_HEADERS packet.extract(hdr.ethernet); packet.extract(hdr.ipv4); packet.extract(hdr.udp); \
        packet.extract(hdr.switchml); packet.extract(hdr.exponents);
    state add {
        SWITCHML_HEADERS
        transition lanes;
    }
    state load {
        SWITCHML_HEADERS
        hdr.lanes.setValid();  // they will be
        transition accept;
    }
    state finish {
        SWITCHML_HEADERS
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
            SWITCHML_PORT &&& SWITCHML_MASK: switchml;
            default: accept;
        }
    }
    state switchml {
        packet.extract(hdr.switchml);
        transition select(hdr.switchml.size, hdr.switchml.msg_type) {
            (SIZE_NONE, SWITCHML_PENDING): exponents_and_pending;
            (SIZE_NONE, _): exponents;
            (SIZE_CODE, _): exponents_and_lanes;
            default: accept;
        }
    }
    state exponents {
        packet.extract(hdr.exponents);
        transition accept;
    }
    state exponents_and_pending {
        packet.extract(hdr.exponents);
        packet.extract(hdr.pending);
        transition accept;
    }
    state exponents_and_lanes {
        packet.extract(hdr.exponents);
        transition lanes;
    }
    state lanes {
        packet.extract(hdr.lanes);
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
        packet.emit(hdr.switchml);
        packet.emit(hdr.exponents);
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
        packet.extract(hdr.switchml);
        transition accept;
    }
}

control EgressDeparser(packet_out packet, inout packet_t hdr, in egress_state_t meta,
                       in egress_intrinsic_metadata_for_deparser_t deparser_meta) {
    Checksum() ipv4_checksum;

    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.hdr_checksum = ipv4_checksum.update(IPV4_FIELDS);
        }
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.switchml);
    }
}

#endif
