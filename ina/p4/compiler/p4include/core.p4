// The P4_16 core library (P4_16 v1.2.5 appendix D): what every program may rely on, whatever its architecture.

// Programs test this guard to see whether the library is there.
#ifndef _CORE_P4_
#define _CORE_P4_

// Standard errors. An error's value in a running switch is its place in the order of declaration.
error {
    NoError,               // nothing went wrong
    PacketTooShort,        // the packet ended inside a header
    NoMatch,               // no case of a select matched
    StackOutOfBounds,      // beyond either end of a header stack
    HeaderTooShort,        // a varbit field was given more bits than it has room for
    ParserTimeout,         // the parser took longer than its target allows
    ParserInvalidArgument  // a parser operation was called with a value that its target does not take
}

// The packet as a parser sees it: a cursor that only moves forward.
extern packet_in {
    // Fills a header of fixed size from the packet and moves the cursor past it. T is a header type.
    void extract<T>(out T hdr);
    // The same for a header with one varbit field of variableFieldSizeInBits.
    void extract<T>(out T variableSizeHeader, in bit<32> variableFieldSizeInBits);
    // The next bits of the packet as a T; the cursor stays.
    T lookahead<T>();
    // Moves the cursor.
    void advance(in bit<32> sizeInBits);
    // Bytes in the packet; some targets do not know before its end.
    bit<32> length();
}

// The packet under construction in a deparser.
extern packet_out {
    // Appends a header if it is valid; stacks, structs and unions member by member.
    void emit<T>(in T hdr);
}

// Goes to reject with toSignal as the parser's error unless check holds.
extern void verify(in bool check, in error toSignal);

// Nothing. The default action of tables that name no other.
@noWarn("unused")
action NoAction() {}

match_kind {
    exact,    // equal bits
    ternary,  // equal under a mask; ties go to the higher priority
    lpm       // longest prefix wins
}

// Compile-time assertions: their value is true when they compile.
extern bool static_assert(bool check, string message);
extern bool static_assert(bool check);

#endif
