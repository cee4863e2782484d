// log_msg does nothing to the packet.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        log_msg("a packet");
        log_msg("d = {}, a + b = {}", { hdr.data.d, hdr.data.a + hdr.data.b });
        hdr.data.e = 1;
    }
}

#include "include/end.p4"
