/* Registers of many widths, read and written in one packet, by index a. */
#include "include/common.p4"

control Body(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<1>>(8) flags;
    register<bit<9>>(8) ports;
    register<int<16>>(8) balance;
    register<bit<48>>(8) addresses;
    register<bit<64>>(8) sums;
    register<bit<128>>(8) wide;

    apply {
        standard.egress_spec = 1;
        bit<32> i = hdr.data.a & 7;
        bit<1> flag;
        bit<9> port;
        int<16> money;
        bit<48> address;
        bit<64> sum;
        bit<128> big;
        flags.read(flag, i);
        ports.read(port, i);
        balance.read(money, i);
        addresses.read(address, i);
        sums.read(sum, i);
        wide.read(big, i);
        flags.write(i, ~flag);
        ports.write(i, port + standard.ingress_port + 100);
        balance.write(i, money - (int<16>)hdr.data.c);
        addresses.write(i, hdr.data.from);
        sums.write(i, sum * 3 + (bit<64>)hdr.data.b);
        wide.write(i, (big << 13) ^ (bit<128>)hdr.data.b);
        hdr.data.to = address;
        hdr.data.kind = (bit<16>)money;  // its sign is not compared: BMv2 forgets it in a register
        hdr.data.c = (flag == 1) ? (bit<16>)port : ~(bit<16>)port;
        hdr.data.b = sum[31:0] ^ big[63:32];
    }
}

SWITCH(Body)
