// tofino1_arch.p4 by its first name.

#include "tna.p4"
