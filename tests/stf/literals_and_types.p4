// Integer literals of every base, width and sign; constants; typedef and type; @name and other annotations.
#include "include/begin.p4"

const bit<32> MORE = 3 * 5;
typedef bit<16> word_t;
type bit<16> index_t;

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    @name("other_action") action act(@name("other_parameter") bit<8> v) {
        hdr.data.e = v;
    }
    @name("other_table") table renamed {
        key = {
            hdr.data.e: exact @name("other_key");
        }
        actions = {
            act;
            NoAction;
        }
    }

    apply {
        standard.egress_spec = 1;
        hdr.data.a = 32w0b1010_1010 + 0o17 + 32w0xF000_0000 + MORE;
        hdr.data.b = (bit<32>)(bit<8>)(8s0xF + 8s1);
        index_t i = (index_t)(bit<16>)hdr.data.d;
        word_t w = (bit<16>)i;
        hdr.data.c = w + 16w0d10;
        if (hdr.data.e == 3) @unlikely {
            hdr.data.f = (bit<32>)(bit<8>)(-8s3);
        }
        renamed.apply();
    }
}

#include "include/end.p4"
