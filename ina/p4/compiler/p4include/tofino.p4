// The Tofino native architecture (TNA) on Tofino 1, by its first name.

#ifndef _TOFINO_
#define _TOFINO_

#include "tna.p4"

#endif
