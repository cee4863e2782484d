/* Admission: is this packet of this life of its job, from one of the job's sources, about that source's own workers? */
#ifndef INA_ATP_ADMISSION_P4
#define INA_ATP_ADMISSION_P4

#include "headers.p4"
#include "metadata.p4"

control Admission(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    bit<16> own_life = 0;

    action set_job(bit<32> full, bit<32> incarnation, bit<16> life, bit<16> group, bit<1> aggregate, bit<19> ecn_depth,
                   bit<32> lifetime) {
        meta.full = full;
        meta.incarnation = incarnation;
        own_life = life;
        meta.group = group;
        meta.aggregate = aggregate;
        meta.ecn_depth = ecn_depth;
        meta.lifetime = lifetime;
    }
    // At a table, not at main: BFRuntime, too, tells controllers what is there.
    @ina_program(protocol=PROTOCOL, values=VALUES, slots=SLOTS, wire=WIRE AND_LANE)
    table job {
        key = { hdr.atp.job: exact; }
        actions = { set_job; NoAction; }
        default_action = NoAction();
        size = 256;
    }

    action set_worker(bit<32> worker) {  // a worker, or a switch below: the bits of all workers there
        meta.workers = worker;
    }
    action set_parent() {  // the switch above, or the parameter server
        meta.downwards = 1;
    }
    table worker {
        key = {
            hdr.atp.job: exact;
            hdr.ipv4.src_addr: exact;
            hdr.udp.src_port: exact;
            standard.ingress_port: exact;
        }
        actions = { set_worker; set_parent; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    apply {
        // Of another version: all that is known of it is where the version is, and what lies in front.
        bool other = hdr.check.version != WIRE_VERSION;
        bit<16> payload = hdr.udp.length - UDP_LENGTH - MORE_LENGTH;
        bool result = hdr.atp.msg_type == Type.RESULT || hdr.atp.msg_type == Type.FLOAT_RESULT
                      || hdr.atp.msg_type == Type.ANSWER MORE_RESULTS;
        bool pending = hdr.atp.msg_type == Type.PENDING;
        if (standard.parser_error != error.NoError) {
            meta.drop = Drop.MALFORMED;
        } else if (standard.checksum_error == 1) {
            meta.drop = Drop.CORRUPT;
        } else if (!other && (hdr.ipv4.total_len != hdr.udp.length + (IPV4_LENGTH - UDP_LENGTH)
                   || ((payload == VALUES_LENGTH || payload == PENDING_LENGTH)
                       && (bit<32>)hdr.ipv4.total_len + 14 > standard.packet_length)
                   || (bit<4>)hdr.atp.msg_type == 0 || (bit<4>)hdr.atp.msg_type > (bit<4>)LAST_TYPE
                   || hdr.atp.msg_type == Type.REFUSED)) {
            meta.drop = Drop.MALFORMED;
        } else if (!other && (pending ? payload != PENDING_LENGTH : payload != 0 && payload != VALUES_LENGTH)) {
            meta.drop = Drop.WRONG_SIZE;
        } else if (!job.apply().hit) {
            meta.drop = Drop.UNKNOWN_JOB;
        } else if (!worker.apply().hit || (!other && (meta.downwards == 1) != (result || pending))) {
            meta.drop = Drop.WRONG_SOURCE;
        } else if (other) {
            meta.drop = Drop.VERSION;
            if (meta.downwards == 0 && hdr.atp.msg_type != Type.REFUSED) {
                meta.refuse = 1;
            }
        } else if (hdr.atp.life != own_life) {
            meta.drop = Drop.OLD_LIFE;
        } else if (meta.downwards == 0 && (hdr.atp.bitmap == 0 || hdr.atp.bitmap & ~meta.workers != 0)) {
            meta.drop = Drop.WRONG_WORKERS;
        }
    }
}

#endif
