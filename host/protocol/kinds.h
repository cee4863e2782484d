/* Written by `make generated` from
 * p4/include/switchml/headers.p4 and p4/include/atp/headers.p4: do not edit. */
#ifndef INA_KINDS_H
#define INA_KINDS_H

#include "protocol.h"

enum { INA_VALUES_NEVER, INA_VALUES_ALWAYS, INA_VALUES_OPTIONAL, INA_VALUES_ZEROS };
enum { INA_WORDS_NONE, INA_WORDS_INTEGERS, INA_WORDS_INDICES, INA_WORDS_FLOATS };
enum { INA_PROGRAM_SWITCHML, INA_PROGRAM_THC, INA_PROGRAM_OMNIREDUCE, INA_PROGRAM_FPISA, INA_PROGRAM_RECEIVERS, INA_PROGRAM_ATP };

struct ina_kind {           /* docs/reference/packet-kinds.md */
    uint8_t program;        /* that has it first */
    uint8_t up, down;       /* 1: workers send it; they get it */
    uint8_t reduction;      /* enum ina_reduction, of what goes up */
    uint8_t some;           /* 1: from and to some workers only, whom its header names */
    uint8_t values, words;
    uint8_t extra, payload; /* bytes of its header behind the check header, and of a payload that is no values */
    uint8_t value;          /* bytes of each value */
    uint8_t checked;        /* 1: the check words are those of the values */
    uint8_t result;         /* kind of the result */
};

enum {
    INA_WIRE_DATA = 1, INA_WIRE_PENDING = 2, INA_WIRE_MAXIMUM = 3, INA_WIRE_REFUSED = 4, INA_WIRE_INDICES = 5, INA_WIRE_ZEROS = 6,
    INA_WIRE_FLOATS = 7, INA_WIRE_TO = 8,
    INA_WIRE_KINDS = 9, INA_WIRE_MOST_EXTRA = 8
};
static const struct ina_kind ina_kinds[16] = { /* by message type; others have no row */
    [INA_WIRE_DATA] = {.program = INA_PROGRAM_SWITCHML, .up = 1, .down = 1, .reduction = INA_SUM, .values = INA_VALUES_OPTIONAL,
        .words = INA_WORDS_INTEGERS, .value = 4, .checked = 1, .result = INA_WIRE_DATA},
    [INA_WIRE_PENDING] = {.program = INA_PROGRAM_SWITCHML, .down = 1, .values = INA_VALUES_NEVER, .words = INA_WORDS_NONE,
        .payload = 4},
    [INA_WIRE_MAXIMUM] = {.program = INA_PROGRAM_SWITCHML, .up = 1, .down = 1, .reduction = INA_MAX,
        .values = INA_VALUES_OPTIONAL, .words = INA_WORDS_INTEGERS, .value = 4, .result = INA_WIRE_MAXIMUM},
    [INA_WIRE_REFUSED] = {.program = INA_PROGRAM_SWITCHML, .down = 1, .values = INA_VALUES_NEVER, .words = INA_WORDS_NONE},
    [INA_WIRE_INDICES] = {.program = INA_PROGRAM_THC, .up = 1, .reduction = INA_OWN, .values = INA_VALUES_ALWAYS,
        .words = INA_WORDS_INDICES, .value = 2, .checked = 1, .result = INA_WIRE_DATA},
    [INA_WIRE_ZEROS] = {.program = INA_PROGRAM_OMNIREDUCE, .up = 1, .down = 1, .reduction = INA_OWN, .values = INA_VALUES_ZEROS,
        .words = INA_WORDS_INTEGERS, .checked = 1, .result = INA_WIRE_DATA},
    [INA_WIRE_FLOATS] = {.program = INA_PROGRAM_FPISA, .up = 1, .down = 1, .reduction = INA_OWN, .values = INA_VALUES_OPTIONAL,
        .words = INA_WORDS_FLOATS, .value = 4, .result = INA_WIRE_FLOATS},
    [INA_WIRE_TO] = {.program = INA_PROGRAM_RECEIVERS, .up = 1, .down = 1, .reduction = INA_SUM, .some = 1,
        .values = INA_VALUES_OPTIONAL, .words = INA_WORDS_INTEGERS, .extra = 8, .value = 4, .checked = 1, .result = INA_WIRE_TO},
};

enum {
    INA_ATP_DATA = 1, INA_ATP_FLOATS = 2, INA_ATP_RESULT = 3, INA_ATP_FLOAT_RESULT = 4, INA_ATP_PENDING = 5, INA_ATP_MAXIMA = 6,
    INA_ATP_REFUSED = 7,
    INA_ATP_KINDS = 8, INA_ATP_MOST_EXTRA = 0
};
static const struct ina_kind ina_atp_kinds[16] = { /* by message type; others have no row */
    [INA_ATP_DATA] = {.program = INA_PROGRAM_ATP, .up = 1, .reduction = INA_SUM, .values = INA_VALUES_OPTIONAL,
        .words = INA_WORDS_INTEGERS, .value = 4, .checked = 1, .result = INA_ATP_RESULT},
    [INA_ATP_FLOATS] = {.program = INA_PROGRAM_ATP, .up = 1, .reduction = INA_SUM, .values = INA_VALUES_ALWAYS,
        .words = INA_WORDS_FLOATS, .value = 4, .checked = 1, .result = INA_ATP_FLOAT_RESULT},
    [INA_ATP_RESULT] = {.program = INA_PROGRAM_ATP, .down = 1, .values = INA_VALUES_OPTIONAL, .words = INA_WORDS_INTEGERS,
        .value = 4, .checked = 1},
    [INA_ATP_FLOAT_RESULT] = {.program = INA_PROGRAM_ATP, .down = 1, .values = INA_VALUES_ALWAYS, .words = INA_WORDS_FLOATS,
        .value = 4, .checked = 1},
    [INA_ATP_PENDING] = {.program = INA_PROGRAM_ATP, .down = 1, .values = INA_VALUES_NEVER, .words = INA_WORDS_NONE,
        .payload = 4},
    [INA_ATP_MAXIMA] = {.program = INA_PROGRAM_ATP, .up = 1, .reduction = INA_MAX, .values = INA_VALUES_OPTIONAL,
        .words = INA_WORDS_INTEGERS, .value = 4, .result = INA_ATP_RESULT},
    [INA_ATP_REFUSED] = {.program = INA_PROGRAM_ATP, .down = 1, .values = INA_VALUES_NEVER, .words = INA_WORDS_NONE},
};

#endif
