// Registers beyond the end: reads are 0, nothing is written.
#include "registers.p4"
