#define _GNU_SOURCE 1 /* preadv2 */
#include "bell.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "port.h"

int ina_bells_create(struct ina_bells *bells)
{
    int pair[2] = {-1, -1};
    *bells = (struct ina_bells){eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), -1, -1};
    if (bells->of_switch < 0 || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        int error = errno;
        ina_bells_close(bells);
        return -error;
    }
    shutdown(pair[0], SHUT_RD); /* and the host cannot send: its data would queue at the switch's end */
    bells->to_host = pair[0];
    bells->of_host = pair[1];
    return 0;
}

void ina_bells_close(struct ina_bells *bells)
{
    const int fds[] = {bells->of_switch, bells->to_host, bells->of_host};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    *bells = (struct ina_bells){-1, -1, -1};
}

int ina_bell_ring(int fd, int side)
{
    const uint64_t one = 1;
    ssize_t sent = side ? send(fd, &one, 1, MSG_DONTWAIT | MSG_NOSIGNAL) : write(fd, &one, sizeof one);
    return sent < 0 && errno != EAGAIN ? -errno : 0;
}

int ina_bell_hush(int fd, int side)
{
    uint64_t rings;
    struct iovec into = {&rings, sizeof rings};
    ssize_t got = side ? recv(fd, &rings, sizeof rings, MSG_DONTWAIT) : preadv2(fd, &into, 1, -1, RWF_NOWAIT);
    return got < 0 && errno != EAGAIN && errno != EINTR ? -errno : 0;
}
