// The v1model architecture: parser, checksum verification, ingress, traffic manager, egress, checksum update, deparser.
// The interface is that of BMv2's simple_switch (p4lang/behavioral-model docs/simple_switch.md), so that a program compiles
// unchanged for it. Programs choose its revision with V1MODEL_VERSION before they include this file: from 20200408 on,
// ports have a type name and indexed externs are generic in their index.

#ifndef _V1_MODEL_P4_
#define _V1_MODEL_P4_

#include <core.p4>

#ifndef V1MODEL_VERSION
#define V1MODEL_VERSION 20180101
#endif
#if V1MODEL_VERSION < 20180101 || V1MODEL_VERSION > 20200408
#error V1MODEL_VERSION is none of v1model's: the first is 20180101, the latest 20200408
#endif

#if V1MODEL_VERSION >= 20200408
#define INA_V1MODEL_PORT PortId_t
#define INA_V1MODEL_GENERIC_INDEX <I>
#define INA_V1MODEL_INDEX I
#else
#define INA_V1MODEL_PORT bit<9>
#define INA_V1MODEL_GENERIC_INDEX
#define INA_V1MODEL_INDEX bit<32>
#endif

const bit<32> __v1model_version = V1MODEL_VERSION;

match_kind {
    range,    // lo .. hi, both inclusive
    optional, // exact, or anything
    selector  // not matched: goes into the action selector's hash
}

#if V1MODEL_VERSION >= 20200408
typedef bit<9> PortId_t;
#endif

// Metadata of a packet from the switch to the program and back.
@metadata
@name("standard_metadata")
struct standard_metadata_t {
    INA_V1MODEL_PORT ingress_port;     // where the packet came in
    INA_V1MODEL_PORT egress_spec;      // ingress writes: where it shall go; 511 drops
    INA_V1MODEL_PORT egress_port;      // egress reads: where it goes
    bit<32> instance_type;             // 0 normal, 1 ingress clone, 2 egress clone, 3 coalesced, 4 recirculated, 5 replica, 6 resubmitted
    bit<32> packet_length;             // bytes
    @alias("queueing_metadata.enq_timestamp")
    bit<32> enq_timestamp;             // when it entered the queue, microseconds
    @alias("queueing_metadata.enq_qdepth")
    bit<19> enq_qdepth;                // packets in the queue as it entered
    @alias("queueing_metadata.deq_timedelta")
    bit<32> deq_timedelta;             // how long it waited, microseconds
    @alias("queueing_metadata.deq_qdepth")
    bit<19> deq_qdepth;                // packets in the queue as it left
    @alias("intrinsic_metadata.ingress_global_timestamp")
    bit<48> ingress_global_timestamp;  // when ingress began, microseconds since the switch started
    @alias("intrinsic_metadata.egress_global_timestamp")
    bit<48> egress_global_timestamp;   // when egress began
    @alias("intrinsic_metadata.mcast_grp")
    bit<16> mcast_grp;                 // ingress writes: multicast group, 0 for none
    @alias("intrinsic_metadata.egress_rid")
    bit<16> egress_rid;                // egress reads: replication id
    bit<1> checksum_error;             // 1 after verify_checksum found a wrong one
    error parser_error;                // how parsing ended
    @alias("intrinsic_metadata.priority")
    bit<3> priority;                   // queue
}

// --- counters and meters

enum CounterType { packets, bytes, packets_and_bytes }
enum MeterType { packets, bytes }

#define V1MODEL_METER_COLOR_GREEN 0
#define V1MODEL_METER_COLOR_YELLOW 1
#define V1MODEL_METER_COLOR_RED 2

// `size` counters; counting beyond the end does nothing.
extern counter INA_V1MODEL_GENERIC_INDEX {
    counter(bit<32> size, CounterType type);
    void count(in INA_V1MODEL_INDEX index);
}

// One counter per entry of the table that names it in its property `counters`.
extern direct_counter {
    direct_counter(CounterType type);
    void count();
}

// `size` two-rate three-colour meters (RFC 2698); result is one of V1MODEL_METER_COLOR_*.
extern meter INA_V1MODEL_GENERIC_INDEX {
    meter(bit<32> size, MeterType type);
    void execute_meter<T>(in INA_V1MODEL_INDEX index, out T result);
}

// One meter per entry of the table that names it in its property `meters`; it has run when the action begins.
extern direct_meter<T> {
    direct_meter(MeterType type);
    void read(out T result);
}

// --- state

// `size` values of type T that outlive packets, initially zero. Beyond the end, reads give zero and writes do nothing.
#if V1MODEL_VERSION >= 20200408
extern register<T, I>
#else
extern register<T>
#endif
{
    register(bit<32> size);
    @noSideEffects
    void read(out T result, in INA_V1MODEL_INDEX index);
    void write(in INA_V1MODEL_INDEX index, in T value);
}

// --- table implementations

extern action_profile {
    action_profile(bit<32> size);
}

enum HashAlgorithm { crc32, crc32_custom, crc16, crc16_custom, random, identity, csum16, xor16 }

extern action_selector {
    action_selector(HashAlgorithm algorithm, bit<32> size, bit<32> outputWidth);
}

// --- functions

// Uniform in lo .. hi, both inclusive.
extern void random<T>(out T result, in T lo, in T hi);

// Sends `data` to the control plane; v1model's only receiver is 1.
extern void digest<T>(in bit<32> receiver, in T data);

// Sets egress_spec to the drop port and mcast_grp to 0; a later assignment may undo it.
@deprecated("use mark_to_drop(standard_metadata)")
extern void mark_to_drop();
@pure
extern void mark_to_drop(inout standard_metadata_t standard_metadata);

// base + (hash of data) modulo max; base when max is 0.
@pure
extern void hash<O, T, D, M>(out O result, in HashAlgorithm algo, in T base, in D data, in M max);

@deprecated("use verify_checksum and update_checksum")
extern Checksum16 {
    Checksum16();
    bit<16> get<D>(in D data);
}

// In VerifyChecksum: sets checksum_error if condition holds and the checksum of data is another one.
extern void verify_checksum<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);
// In ComputeChecksum: sets checksum if condition holds.
@pure
extern void update_checksum<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algo);
// The same over data and then the packet's unparsed payload.
extern void verify_checksum_with_payload<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);
@noSideEffects
extern void update_checksum_with_payload<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algo);

// --- packet paths. They take effect at the end of ingress or egress; the last call wins.
// Metadata fields annotated @field_list(index) keep their values, the others begin as zero.

enum CloneType { I2E, E2E }

extern void clone(in CloneType type, in bit<32> session);
extern void clone_preserving_field_list(in CloneType type, in bit<32> session, bit<8> index);
extern void resubmit_preserving_field_list(bit<8> index);
extern void recirculate_preserving_field_list(bit<8> index);
@deprecated("use resubmit_preserving_field_list")
extern void resubmit<T>(in T data);
@deprecated("use recirculate_preserving_field_list")
extern void recirculate<T>(in T data);
@deprecated("use clone_preserving_field_list")
extern void clone3<T>(in CloneType type, in bit<32> session, in T data);

// Cuts the packet to `length` bytes when it is deparsed.
extern void truncate(in bit<32> length);

// --- debugging

extern void assert(in bool check);
extern void assume(in bool check);
extern void log_msg(string msg);
extern void log_msg<T>(string msg, in T data);

// --- the pipeline

parser Parser<H, M>(packet_in b, out H parsedHdr, inout M meta, inout standard_metadata_t standard_metadata);
control VerifyChecksum<H, M>(inout H hdr, inout M meta);
@pipeline
control Ingress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);
@pipeline
control Egress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);
control ComputeChecksum<H, M>(inout H hdr, inout M meta);
@deparser
control Deparser<H>(packet_out b, in H hdr);

package V1Switch<H, M>(
    Parser<H, M> p,
    VerifyChecksum<H, M> vr,
    Ingress<H, M> ig,
    Egress<H, M> eg,
    ComputeChecksum<H, M> ck,
    Deparser<H> dep);

#endif
