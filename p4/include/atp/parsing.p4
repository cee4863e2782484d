/* Parser, checksums, deparser. */
#ifndef INA_ATP_PARSING_P4
#define INA_ATP_PARSING_P4

#include "headers.p4"
#include "metadata.p4"

parser SwitchParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
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
    state atp {
        packet.extract(hdr.atp);
        packet.extract(hdr.check);
        transition select(hdr.atp.msg_type, hdr.udp.length) {
            (Type.DATA, UDP_LENGTH + VALUES_LENGTH): values;
            (Type.MAXIMA, UDP_LENGTH + VALUES_LENGTH): values;
            MORE_STARTS
            default: accept;
        }
    }
    MORE_STATES
    state values {
        packet.extract(hdr.values);
        transition accept;
    }
}

#define IPV4_FIELDS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_len, hdr.ipv4.identification, \
    hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr }

#define CHECK_FIELDS { hdr.atp.msg_type, hdr.atp.resend, hdr.atp.collision, hdr.atp.ecn, hdr.atp.overflow, hdr.atp.exponent, \
    hdr.atp.index, hdr.atp.life, hdr.atp.job, hdr.atp.sequence, hdr.atp.bitmap, \
    hdr.check.version, hdr.check.flags, hdr.check.check0, hdr.check.check1 }

control VerifyChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.atp.isValid(), IPV4_FIELDS, hdr.ipv4.hdr_checksum, HashAlgorithm.csum16);
        verify_checksum(CHECKED_ALIKE, CHECK_FIELDS, hdr.check.headers, HashAlgorithm.csum16);
        MORE_CHECKSUMS(verify_checksum)
    }
}

control UpdateChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.atp.isValid(), IPV4_FIELDS, hdr.ipv4.hdr_checksum, HashAlgorithm.csum16);
        update_checksum(CHECKED_ALIKE, CHECK_FIELDS, hdr.check.headers, HashAlgorithm.csum16);
        MORE_CHECKSUMS(update_checksum)
    }
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.atp);
        packet.emit(hdr.check);
        MORE_HEADERS
        packet.emit(hdr.values);
    }
}

#endif
