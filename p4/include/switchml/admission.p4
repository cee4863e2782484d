/* Admission: is this packet of a registered child or of the parent, of this life of its job, for a slot that the job owns? */
#ifndef INA_ADMISSION_P4
#define INA_ADMISSION_P4

#include "headers.p4"
#include "metadata.p4"

#ifndef PROTOCOL
#define PROTOCOL "switchml"
#endif
#ifndef NOR_MORE_TYPES  // of a program that includes this file (p4/include/fpisa/headers.p4)
#define NOR_MORE_TYPES
#endif
#ifndef AND_LIMITS  // of such a program: of the jobs that it can serve
#define AND_LIMITS
#endif
#ifndef MORE_LENGTH  // bytes of headers between the check header and the values
#define MORE_LENGTH 0
#endif

control Admission(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    bit<16> slot_base = 0;
    bit<14> slot_mask = 0;
    bit<8>  own_life = 0;

    action set_job(bit<32> full, bit<8> last, bit<16> base, bit<14> mask, bit<32> incarnation, bit<8> life, bit<16> group,
                   bit<1> strict, bit<1> parent) {
        meta.full = full;
        meta.last = last;
        slot_base = base;
        slot_mask = mask;
        meta.incarnation = incarnation;
        own_life = life;
        meta.group = group;
        meta.strict = strict;
        meta.parent = parent;
    }
    // At a table, not at main: BFRuntime, too, tells controllers what is there.
    @ina_program(protocol=PROTOCOL, values=VALUES, slots=SLOTS, wire=WIRE AND_LANE AND_LIMITS)
    table job {
        key = { hdr.switchml.job: exact; }
        actions = { set_job; NoAction; }
        default_action = NoAction();
        size = 256;
    }

    action set_worker(bit<32> worker) {
        meta.worker = worker;
    }
    action set_parent() {
        meta.worker = 0;
    }
    table worker {
        key = {
            hdr.switchml.job: exact;
            hdr.ipv4.src_addr: exact;
            hdr.udp.src_port: exact;
            standard.ingress_port: exact;
        }
        actions = { set_worker; set_parent; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    apply {
        // A frame of another version: all that is known of it is where the version is, and what lies in front.
        bool other = hdr.check.isValid() && hdr.check.version != WIRE_VERSION;
        bit<16> payload = 0;
        if (hdr.check.isValid()) {
            payload = CHECK_LENGTH + MORE_LENGTH;
        }
        if (hdr.values.isValid()) {
            payload = payload + VALUES_BYTES;
        } else if (hdr.switchml.msg_type == SWITCHML_PENDING) {
            payload = payload + PENDING_LENGTH;
        }
        if (standard.parser_error != error.NoError) @unlikely {
            meta.drop = Drop.MALFORMED;
        } else if (standard.checksum_error == 1) @unlikely {
            meta.drop = Drop.CORRUPT;
        } else if (!other && hdr.switchml.msg_type != SWITCHML_DATA && hdr.switchml.msg_type != SWITCHML_MAXIMUM NOR_MORE_TYPES
                   && (hdr.switchml.msg_type != SWITCHML_PENDING || hdr.switchml.size != SIZE_NONE
                       || !hdr.check.isValid() || standard.packet_length < PENDING_FRAME)) @unlikely {
            meta.drop = Drop.MALFORMED;
        } else if (!other && !hdr.values.isValid() && hdr.switchml.size != SIZE_NONE) @unlikely {
            meta.drop = Drop.WRONG_SIZE;
        } else if (!other && (hdr.ipv4.total_len != IPV4_LENGTH + payload || hdr.udp.length != UDP_LENGTH + payload)) @unlikely {
            meta.drop = Drop.MALFORMED;
        } else if (!job.apply().hit) @unlikely {
            meta.drop = Drop.UNKNOWN_JOB;
        } else if (!worker.apply().hit || (!other && hdr.switchml.msg_type == SWITCHML_PENDING && meta.worker != 0)) @unlikely {
            meta.drop = Drop.WRONG_SOURCE;
        } else if (other || (meta.strict == 1 && !hdr.check.isValid())) @unlikely {  // without a check header: version 1
            meta.drop = Drop.VERSION;
            if (meta.worker != 0 && hdr.exponents.isValid() && hdr.switchml.msg_type != SWITCHML_REFUSED) {
                meta.to = To.SENDER;
            }
        } else if (meta.strict == 1 && (bit<8>)hdr.exponents.e1 != own_life) @unlikely {
            meta.drop = Drop.OLD_LIFE;
        } else if (hdr.switchml.slot & slot_mask != hdr.switchml.slot) @unlikely {
            meta.drop = Drop.WRONG_SLOT;
        } else {
            meta.row = ((bit<32>)slot_base + (bit<32>)hdr.switchml.slot) << 1 | (bit<32>)hdr.switchml.set;
        }
    }
}

#endif
