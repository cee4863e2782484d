/* exercise: count
 *
 * Count contributions, and answer questions about them. `ina exercise show count` has the task; `ina exercise check count.p4` runs the
 * tests.
 */
#include "course.p4"

const bit<9> PORTS = 8;  // cells of what has one for each port

control Count(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(8, CounterType.packets_and_bytes) frames;
    register<bit<32>>(8) contributions;
    register<bit<32>>(1) total;

    apply {
        mark_to_drop(standard);
        // TODO: leave out ports from PORTS on.

        bit<32> port = (bit<32>)standard.ingress_port;
        // TODO: count the frame. Hint: frames.count(INDEX).

        // TODO: leave out what is malformed or not of the course.

        bit<32> here;
        bit<32> everywhere;
        // TODO: read both registers, and add one for a contribution.
        // Hint: NAME.read(VARIABLE, INDEX) and NAME.write(INDEX, VALUE); nothing else happens to the cell in between.

        // TODO: answer a question.
        // Hint: to set standard.egress_spec takes the drop at the top back.
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

V1Switch(Parse(), Verify(), Count(), Leave(), Update(), Deparse()) main;
