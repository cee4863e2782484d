/* exercise: forward
 *
 * Forward by Ethernet's destination address. `ina exercise show forward` has the task; `ina exercise check forward.p4` runs the tests.
 */
#include "course.p4"

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action forward(bit<9> port) {
        // TODO: send the frame to `port`.
    }
    action drop() {
        mark_to_drop(standard);
    }
    table hosts {
        key = {
            hdr.ethernet.dst: exact;
        }
        actions = {
            forward;
            drop;
        }
        // TODO: what is done with an address that no entry has? Without a default action nothing is done, and the frame goes to port 0.
        size = 64;
    }

    apply {
        // TODO: drop malformed frames, as in step 1.

        hosts.apply();

        // TODO: drop what would go back to where it came from.
        // Hint: after the table, standard.egress_spec has the port.

        // TODO: take one off hdr.sum.hops, or drop the frame if it has no more.
        // Hint: frames of other types have no header hdr.sum; what is in its fields there is undefined.
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

V1Switch(Parse(), Verify(), Forward(), Leave(), Update(), Deparse()) main;
