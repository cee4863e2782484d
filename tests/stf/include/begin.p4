// What every program of this folder begins with; end.p4 supplies the blocks that it does not define itself.
#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<32> a;
    bit<32> b;
    bit<16> c;
    bit<8>  d;
    bit<8>  e;
    bit<32> f;
}

#define ALL inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard
