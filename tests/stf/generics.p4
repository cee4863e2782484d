// Generic functions, structs and headers; type arguments written and inferred.
#include "include/begin.p4"

struct pair_t<T> {
    T first;
    T second;
}
header box_t<T> {
    T v;
}
T larger<T>(in T x, in T y) {
    return y;
}
pair_t<T> swapped<T>(in pair_t<T> p) {
    return { p.second, p.first };
}

struct headers_t {
    data_t data;
    box_t<bit<24>> more;
}

struct metadata_t {
}

#define PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        packet.extract(hdr.more);
        transition accept;
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        pair_t<bit<8>> p = { hdr.data.d, hdr.data.e };
        pair_t<bit<16>> q = { first = 0x1234, second = hdr.data.c };
        hdr.data.a = larger(hdr.data.a, hdr.data.b);
        hdr.data.d = larger<bit<8>>(p.first, p.second);
        hdr.data.c = swapped(q).first;
        hdr.data.e = swapped(p).second;
        if (hdr.more.isValid()) {
            hdr.more.v = hdr.more.v + 1;
        }
    }
}

#include "include/end.p4"
