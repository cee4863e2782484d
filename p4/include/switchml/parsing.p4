/* Parser, checksums, deparser. */
#ifndef INA_PARSING_P4
#define INA_PARSING_P4

#include "headers.p4"
#include "metadata.p4"

#ifndef WITH_VALUES    // the state for frames whose payload has this program's size
#define WITH_VALUES values
#endif
#ifndef BEHIND_CHECK   // the state behind a check header
#define BEHIND_CHECK values_if_any
#endif
#ifndef MORE_STATES
#define MORE_STATES
#endif
#ifndef MORE_HEADERS   // between the check header and the values
#define MORE_HEADERS
#endif
#ifndef CHECKED_ALIKE  // its checksum covers nothing more
#define CHECKED_ALIKE hdr.check.isValid()
#define MORE_CHECKSUMS(update_or_verify)
#endif

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
            SWITCHML_PORT &&& SWITCHML_MASK: switchml;
            default: accept;
        }
    }
    state switchml {
        packet.extract(hdr.switchml);
        transition select(hdr.switchml.checked, hdr.switchml.size) {
            (1, _): exponents_and_check;
            (0, SIZE_NONE): exponents;
            (0, SIZE_CODE): exponents;
            default: accept;
        }
    }
    state exponents_and_check {
        packet.extract(hdr.exponents);
        packet.extract(hdr.check);
        transition BEHIND_CHECK;
    }
    state exponents {
        packet.extract(hdr.exponents);
        transition values_if_any;
    }
    state values_if_any {  // a pending frame from above goes on as it is: its bitmap is not looked at
        transition select(hdr.switchml.size) {
            SIZE_CODE: WITH_VALUES;
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

#define CHECK_FIELDS { hdr.switchml.msg_type, hdr.switchml.overflow, hdr.switchml.size, hdr.switchml.job, hdr.switchml.tsi, \
    hdr.switchml.set, hdr.switchml.checked, hdr.switchml.slot, hdr.exponents.e0, hdr.exponents.e1, \
    hdr.check.version, hdr.check.flags, hdr.check.check0, hdr.check.check1 }

control VerifyChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.switchml.isValid(), IPV4_FIELDS, hdr.ipv4.hdr_checksum, HashAlgorithm.csum16);
        verify_checksum(CHECKED_ALIKE, CHECK_FIELDS, hdr.check.headers, HashAlgorithm.csum16);
        MORE_CHECKSUMS(verify_checksum)
    }
}

control UpdateChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.switchml.isValid(), IPV4_FIELDS, hdr.ipv4.hdr_checksum, HashAlgorithm.csum16);
        update_checksum(CHECKED_ALIKE, CHECK_FIELDS, hdr.check.headers, HashAlgorithm.csum16);
        MORE_CHECKSUMS(update_checksum)
    }
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.switchml);
        packet.emit(hdr.exponents);
        packet.emit(hdr.check);
        packet.emit(hdr.pending);
        MORE_HEADERS
        packet.emit(hdr.values);
    }
}

#endif
