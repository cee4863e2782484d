// A program defines PARSER, VERIFY, EGRESS, COMPUTE or DEPARSER if it has such a block of its own: Parse, Verify, Out,
// Compute, Deparse. Each has In, its ingress.
#ifndef PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        transition accept;
    }
}
#endif
#ifndef VERIFY
control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}
#endif
#ifndef EGRESS
control Out(ALL) {
    apply { }
}
#endif
#ifndef COMPUTE
control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}
#endif
#ifndef DEPARSER
control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}
#endif

V1Switch(Parse(), Verify(), In(), Out(), Compute(), Deparse()) main;
