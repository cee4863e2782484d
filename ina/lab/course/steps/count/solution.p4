/* exercise: count
 *
 * Counts contributions, and answers questions about them.
 */
#include "course.p4"

const bit<9> PORTS = 8;  // cells of what has one for each port

control Count(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(8, CounterType.packets_and_bytes) frames;
    register<bit<32>>(8) contributions;
    register<bit<32>>(1) total;

    apply {
        mark_to_drop(standard);
        if (standard.ingress_port >= PORTS) {
            return;
        }
        bit<32> port = (bit<32>)standard.ingress_port;
        frames.count(port);
        if (standard.parser_error != error.NoError || !hdr.sum.isValid()) {
            return;
        }
        bit<32> here;
        bit<32> everywhere;
        contributions.read(here, port);
        total.read(everywhere, 0);
        if (hdr.sum.kind == CONTRIBUTION) {
            contributions.write(port, here + 1);
            total.write(0, everywhere + 1);
        } else if (hdr.sum.kind == QUESTION) {
            hdr.sum.kind = RESULT;
            hdr.values.v0 = here;
            hdr.values.v1 = everywhere;
            standard.egress_spec = standard.ingress_port;
        }
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

V1Switch(Parse(), Verify(), Count(), Leave(), Update(), Deparse()) main;
