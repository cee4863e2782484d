/* Written by `make generated` from
 * p4/include/switchml/headers.p4 and p4/include/atp/headers.p4: do not edit. */
#ifndef INA_KINDS_H
#define INA_KINDS_H

#include "protocol.h"

enum { INA_CONTRIBUTORS_NONE, INA_CONTRIBUTORS_ALL, INA_CONTRIBUTORS_SOURCES, INA_CONTRIBUTORS_OFFERING };
enum { INA_RECEIVERS_NONE, INA_RECEIVERS_ALL, INA_RECEIVERS_SENDER, INA_RECEIVERS_RECEIVERS };
enum { INA_VALUES_NEVER, INA_VALUES_ALWAYS, INA_VALUES_OPTIONAL, INA_VALUES_ZEROS };
enum { INA_WORDS_NONE, INA_WORDS_INTEGERS, INA_WORDS_INDICES, INA_WORDS_FLOATS, INA_WORDS_LANES, INA_WORDS_BYTES };
enum { INA_PROGRAM_SWITCHML, INA_PROGRAM_THC, INA_PROGRAM_OMNIREDUCE, INA_PROGRAM_FPISA, INA_PROGRAM_RECEIVERS, INA_PROGRAM_REQUANTISED, INA_PROGRAM_QUORUM, INA_PROGRAM_ATP, INA_PROGRAM_ATP_ROUTES };

struct ina_kind {           /* docs/reference/packet-kinds.md */
    uint8_t program;        /* that has it first */
    uint8_t contributors;   /* who sends it; NONE: it does not go up */
    uint8_t receivers;      /* who gets it; NONE: it does not come down */
    uint8_t reduction;      /* enum ina_reduction, of what goes up */
    uint8_t values, words;
    uint8_t extra, payload; /* bytes of its header behind the check header, and of a payload that is no values */
    uint8_t quarters;       /* of a lane's value that one of its takes; 0: none are sent */
    uint8_t checked;        /* 1: the check words are those of the values */
    uint8_t result;         /* kind of the result */
};

enum {
    INA_WIRE_DATA = 1, INA_WIRE_PENDING = 2, INA_WIRE_MAXIMUM = 3, INA_WIRE_REFUSED = 4, INA_WIRE_INDICES = 5, INA_WIRE_ZEROS = 6,
    INA_WIRE_FLOATS = 7, INA_WIRE_TO = 8, INA_WIRE_LANES = 9, INA_WIRE_BYTES = 10, INA_WIRE_OFFER = 11,
    INA_WIRE_KINDS = 12, INA_WIRE_MOST_EXTRA = 12
};
enum { /* of each program: struct ina_protocol */
    INA_REDUCTIONS_SWITCHML = 1 << INA_SUM | 1 << INA_MAX,
    INA_REDUCTIONS_THC = 1 << INA_SUM | 1 << INA_MAX | 1 << INA_OWN,
    INA_REDUCTIONS_OMNIREDUCE = 1 << INA_SUM | 1 << INA_MAX | 1 << INA_OWN,
    INA_REDUCTIONS_FPISA = 1 << INA_SUM | 1 << INA_MAX | 1 << INA_OWN,
    INA_REDUCTIONS_RECEIVERS = 1 << INA_SUM | 1 << INA_MAX,
    INA_REDUCTIONS_REQUANTISED = 1 << INA_SUM | 1 << INA_MAX | 1 << INA_OWN,
    INA_REDUCTIONS_QUORUM = 1 << INA_SUM | 1 << INA_MAX,
};
static const struct ina_kind ina_kinds[16] = { /* by message type; others have no row */
    [INA_WIRE_DATA] = {.program = INA_PROGRAM_SWITCHML, .reduction = INA_SUM, .contributors = INA_CONTRIBUTORS_ALL,
        .receivers = INA_RECEIVERS_ALL, .values = INA_VALUES_OPTIONAL, .words = INA_WORDS_INTEGERS, .quarters = 4, .checked = 1,
        .result = INA_WIRE_DATA},
    [INA_WIRE_PENDING] = {.program = INA_PROGRAM_SWITCHML, .receivers = INA_RECEIVERS_SENDER, .payload = 4},
    [INA_WIRE_MAXIMUM] = {.program = INA_PROGRAM_SWITCHML, .reduction = INA_MAX, .contributors = INA_CONTRIBUTORS_ALL,
        .receivers = INA_RECEIVERS_ALL, .values = INA_VALUES_OPTIONAL, .words = INA_WORDS_INTEGERS, .quarters = 4,
        .result = INA_WIRE_MAXIMUM},
    [INA_WIRE_REFUSED] = {.program = INA_PROGRAM_SWITCHML, .receivers = INA_RECEIVERS_SENDER},
    [INA_WIRE_INDICES] = {.program = INA_PROGRAM_THC, .reduction = INA_OWN, .contributors = INA_CONTRIBUTORS_ALL,
        .values = INA_VALUES_ALWAYS, .words = INA_WORDS_INDICES, .quarters = 2, .checked = 1, .result = INA_WIRE_DATA},
    [INA_WIRE_ZEROS] = {.program = INA_PROGRAM_OMNIREDUCE, .reduction = INA_OWN, .contributors = INA_CONTRIBUTORS_ALL,
        .receivers = INA_RECEIVERS_ALL, .values = INA_VALUES_ZEROS, .words = INA_WORDS_INTEGERS, .checked = 1,
        .result = INA_WIRE_DATA},
    [INA_WIRE_FLOATS] = {.program = INA_PROGRAM_FPISA, .reduction = INA_OWN, .contributors = INA_CONTRIBUTORS_ALL,
        .receivers = INA_RECEIVERS_ALL, .values = INA_VALUES_OPTIONAL, .words = INA_WORDS_FLOATS, .quarters = 4,
        .result = INA_WIRE_FLOATS},
    [INA_WIRE_TO] = {.program = INA_PROGRAM_RECEIVERS, .reduction = INA_SUM, .contributors = INA_CONTRIBUTORS_SOURCES,
        .receivers = INA_RECEIVERS_RECEIVERS, .values = INA_VALUES_OPTIONAL, .words = INA_WORDS_INTEGERS, .extra = 8,
        .quarters = 4, .checked = 1, .result = INA_WIRE_TO},
    [INA_WIRE_LANES] = {.program = INA_PROGRAM_REQUANTISED, .reduction = INA_OWN, .contributors = INA_CONTRIBUTORS_ALL,
        .values = INA_VALUES_ALWAYS, .words = INA_WORDS_LANES, .quarters = 4, .result = INA_WIRE_BYTES},
    [INA_WIRE_BYTES] = {.program = INA_PROGRAM_REQUANTISED, .receivers = INA_RECEIVERS_ALL, .values = INA_VALUES_ALWAYS,
        .words = INA_WORDS_BYTES, .quarters = 2},
    [INA_WIRE_OFFER] = {.program = INA_PROGRAM_QUORUM, .contributors = INA_CONTRIBUTORS_OFFERING, .receivers = INA_RECEIVERS_ALL,
        .extra = 12, .result = INA_WIRE_OFFER},
};

enum {
    INA_ATP_DATA = 1, INA_ATP_FLOATS = 2, INA_ATP_RESULT = 3, INA_ATP_FLOAT_RESULT = 4, INA_ATP_PENDING = 5, INA_ATP_MAXIMA = 6,
    INA_ATP_REFUSED = 7, INA_ATP_OFFER = 8, INA_ATP_ANSWER = 9, INA_ATP_TO = 10, INA_ATP_TO_RESULT = 11,
    INA_ATP_KINDS = 12, INA_ATP_MOST_EXTRA = 8
};
enum { /* of each program: struct ina_protocol */
    INA_REDUCTIONS_ATP = 1 << INA_SUM | 1 << INA_MAX,
    INA_REDUCTIONS_ATP_ROUTES = 1 << INA_SUM | 1 << INA_MAX,
};
static const struct ina_kind ina_atp_kinds[16] = { /* by message type; others have no row */
    [INA_ATP_DATA] = {.program = INA_PROGRAM_ATP, .reduction = INA_SUM, .contributors = INA_CONTRIBUTORS_ALL,
        .values = INA_VALUES_OPTIONAL, .words = INA_WORDS_INTEGERS, .quarters = 4, .checked = 1, .result = INA_ATP_RESULT},
    [INA_ATP_FLOATS] = {.program = INA_PROGRAM_ATP, .reduction = INA_SUM, .contributors = INA_CONTRIBUTORS_ALL,
        .values = INA_VALUES_ALWAYS, .words = INA_WORDS_FLOATS, .quarters = 4, .checked = 1, .result = INA_ATP_FLOAT_RESULT},
    [INA_ATP_RESULT] = {.program = INA_PROGRAM_ATP, .receivers = INA_RECEIVERS_ALL, .values = INA_VALUES_OPTIONAL,
        .words = INA_WORDS_INTEGERS, .quarters = 4, .checked = 1},
    [INA_ATP_FLOAT_RESULT] = {.program = INA_PROGRAM_ATP, .receivers = INA_RECEIVERS_ALL, .values = INA_VALUES_ALWAYS,
        .words = INA_WORDS_FLOATS, .quarters = 4, .checked = 1},
    [INA_ATP_PENDING] = {.program = INA_PROGRAM_ATP, .receivers = INA_RECEIVERS_SENDER, .payload = 4},
    [INA_ATP_MAXIMA] = {.program = INA_PROGRAM_ATP, .reduction = INA_MAX, .contributors = INA_CONTRIBUTORS_ALL,
        .values = INA_VALUES_OPTIONAL, .words = INA_WORDS_INTEGERS, .quarters = 4, .result = INA_ATP_RESULT},
    [INA_ATP_REFUSED] = {.program = INA_PROGRAM_ATP, .receivers = INA_RECEIVERS_SENDER},
    [INA_ATP_OFFER] = {.program = INA_PROGRAM_ATP, .contributors = INA_CONTRIBUTORS_OFFERING, .result = INA_ATP_ANSWER},
    [INA_ATP_ANSWER] = {.program = INA_PROGRAM_ATP, .receivers = INA_RECEIVERS_ALL},
    [INA_ATP_TO] = {.program = INA_PROGRAM_ATP_ROUTES, .reduction = INA_SUM, .contributors = INA_CONTRIBUTORS_SOURCES,
        .values = INA_VALUES_OPTIONAL, .words = INA_WORDS_INTEGERS, .extra = 8, .quarters = 4, .checked = 1,
        .result = INA_ATP_TO_RESULT},
    [INA_ATP_TO_RESULT] = {.program = INA_PROGRAM_ATP_ROUTES, .receivers = INA_RECEIVERS_RECEIVERS, .values = INA_VALUES_OPTIONAL,
        .words = INA_WORDS_INTEGERS, .extra = 8, .quarters = 4, .checked = 1},
};

#endif
