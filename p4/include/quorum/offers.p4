/* Offers: which workers contribute to the sums that follow. A phase of offers is decided when a packet of every worker has come, and
 * so many workers can contribute as that packet says are enough, or nobody is left who may. Its contributors stay the same from then on:
 * who comes later is told who they are.
 *
 * Below the root of a tree they are not kept: they go up one by one, so that the root, which knows all workers, decides, and its answers go to
 * all children. */
#ifndef INA_OFFERS_P4
#define INA_OFFERS_P4

#include "headers.p4"
#include "../switchml/metadata.p4"

/* Before a row is looked at: what may not be is dropped, and what this switch does not decide is passed on. */
control Relay(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.offer.isValid()) {
            bool answer = hdr.offer.state == OFFER_OPEN || hdr.offer.state == OFFER_DECIDED;
            if (meta.strict == 0 || hdr.offer.state > OFFER_DECIDED || (meta.worker == 0) != answer) @unlikely {
                meta.drop = Drop.WRONG_SIZE;
            } else if (meta.worker == 0) {
                meta.to = To.CHILDREN;
                meta.complete = 1;
            } else if (hdr.offer.ranks == 0 || hdr.offer.ranks & (hdr.offer.ranks - 1) != 0
                       || hdr.offer.ranks & ~meta.worker != 0) @unlikely {
                meta.drop = Drop.WRONG_SIZE;  // one worker's, and the child's
            } else if (meta.parent == 1) {
                meta.to = To.PARENT;
                meta.complete = 1;
            }
        }
    }
}

/* In the row's phase, at the root: `seen` and `left` are the row's. */
control Offers(inout headers_t hdr, inout metadata_t meta, inout bit<32> seen, inout bit<8> left) {
    register<bit<32>>(ROWS) contributors;
    register<bit<32>>(ROWS) passed;
    register<bit<8>>(ROWS) counts;  // contributors

    apply {
        bit<32> given;
        bit<32> without;
        bit<8> count;
        contributors.read(given, meta.row);
        passed.read(without, meta.row);
        counts.read(count, meta.row);
        if (meta.first == 1) {
            given = 0;
            without = 0;
            count = 0;
            left = 1;
        }

        bit<32> worker = hdr.offer.ranks;
        bool again = seen & worker != 0;
        bool known = (given | without) & worker != 0;
        if (left != 0) {
            seen = seen | worker;
            if (!known && hdr.offer.state == OFFER_GIVE && given & hdr.offer.rivals == 0) {
                given = given | worker;
                count = count + 1;
            } else if (!known && hdr.offer.state != OFFER_ASK) {
                without = without | worker;
            }
            if (seen == meta.full && (count >= hdr.offer.least || given | without == meta.full)) {
                left = 0;
                meta.to = To.CHILDREN;
            } else if (again && (known || hdr.offer.state == OFFER_ASK)) {
                meta.to = To.SENDER;
            }
            contributors.write(meta.row, given);
            passed.write(meta.row, without);
            counts.write(meta.row, count);
        } else {
            meta.to = To.SENDER;
        }

        if (meta.to != To.NOBODY) {
            meta.complete = 1;
            hdr.switchml.overflow = 0;
            if (left == 0) {
                hdr.offer.state = OFFER_DECIDED;
                hdr.offer.ranks = given;
            } else {
                hdr.offer.state = OFFER_OPEN;
                hdr.offer.ranks = seen != meta.full ? meta.full & ~seen : meta.full & ~(given | without);
            }
        }
    }
}

#endif
