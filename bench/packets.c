/* Rates of packet sockets on this machine, without a switch: the limits that forwarding is compared with.
 *
 *     packets send IF MAC SIZE SECONDS         frames to MAC out of IF, as fast as it goes
 *     packets sink IF SECONDS busy|block       takes them
 *     packets forward IN OUT SECONDS busy|block  from one interface to another, nothing done to them
 *
 * Each says how many frames it sent (or took, if it sends none), in how many seconds from the first to the last, and how many
 * seconds of processor time that took. Batches of 64 with sendmmsg(2) and recvmmsg(2); `block` sleeps in recvmmsg when there is
 * nothing, `busy` never sleeps. */
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

enum { BATCH = 64, FRAME = 9014 };

static uint8_t frames[BATCH][FRAME];
static struct iovec iovs[BATCH];
static struct mmsghdr msgs[BATCH];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void say(uint64_t count, double seconds)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("%llu %.6f %.6f\n", (unsigned long long)count, seconds,
           (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) + 1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec));
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int open_on(const char *interface)
{
    int fd = socket(AF_PACKET, SOCK_RAW, 0), on = 1, size = 16 << 20;
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex(interface)};
    struct packet_mreq all = {.mr_ifindex = at.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
    struct timeval patience = {.tv_usec = 200000};
    if (fd < 0 || !at.sll_ifindex || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) < 0
        || setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) < 0
        || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0
        || setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) < 0
        || setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on) < 0
        || setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) < 0
        || bind(fd, (struct sockaddr *)&at, sizeof at) < 0)
        fail(interface);
    return fd;
}

static void send_until(int fd, const char *mac, unsigned size, double seconds)
{
    unsigned octets[6];
    uint64_t sent = 0;
    if (sscanf(mac, "%x:%x:%x:%x:%x:%x", &octets[0], &octets[1], &octets[2], &octets[3], &octets[4], &octets[5]) != 6)
        fail(mac);
    for (int i = 0; i < BATCH; i++) {
        for (int k = 0; k < 6; k++)
            frames[i][k] = (uint8_t)octets[k];
        frames[i][12] = 0x88; /* EtherType 0x88b5: for experiments (IEEE 802) */
        frames[i][13] = 0xb5;
        iovs[i].iov_len = size;
    }
    double began = now(), at = began;
    for (; at < began + seconds; at = now()) {
        int n = sendmmsg(fd, msgs, BATCH, MSG_DONTWAIT);
        sent += n > 0 ? (uint64_t)n : 0;
    }
    say(sent, at - began);
}

/* Receives frames for `seconds` and sends each out of `out`, if there is one. */
static void take_until(int in, int out, double seconds, int busy)
{
    uint64_t taken = 0, sent = 0;
    double first = 0, last = 0, until = now() + seconds;
    while (now() < until) {
        for (int i = 0; i < BATCH; i++)
            iovs[i].iov_len = FRAME;
        int n = recvmmsg(in, msgs, BATCH, busy ? MSG_DONTWAIT : MSG_WAITFORONE, NULL);
        if (n <= 0)
            continue;
        taken += (uint64_t)n;
        last = now();
        first = first > 0 ? first : last;
        for (int i = 0; i < n; i++)
            iovs[i].iov_len = msgs[i].msg_len;
        int done = out < 0 ? 0 : sendmmsg(out, msgs, (unsigned)n, MSG_DONTWAIT);
        sent += done > 0 ? (uint64_t)done : 0;
    }
    say(out < 0 ? taken : sent, last - first);
}

int main(int argc, char **argv)
{
    for (int i = 0; i < BATCH; i++) {
        iovs[i] = (struct iovec){frames[i], FRAME};
        msgs[i].msg_hdr = (struct msghdr){.msg_iov = &iovs[i], .msg_iovlen = 1};
    }
    if (argc == 6 && !strcmp(argv[1], "send"))
        send_until(open_on(argv[2]), argv[3], (unsigned)atoi(argv[4]), atof(argv[5]));
    else if (argc == 5 && !strcmp(argv[1], "sink"))
        take_until(open_on(argv[2]), -1, atof(argv[3]), !strcmp(argv[4], "busy"));
    else if (argc == 6 && !strcmp(argv[1], "forward"))
        take_until(open_on(argv[2]), open_on(argv[3]), atof(argv[4]), !strcmp(argv[5], "busy"));
    else
        return 2;
    return 0;
}
