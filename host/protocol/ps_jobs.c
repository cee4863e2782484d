#include "ps_jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 256, SHARE = 8 /* frames of one job before it is another's turn */ };

struct job {
    void *state;          /* NULL: none */
    size_t stats_offset;
    uint32_t waits;       /* may have frames to send */
};

struct ina_ps_jobs {
    struct job job[JOBS];
    uint32_t turn;        /* whose turn it is to send */
    uint64_t strangers;
};

struct ina_ps_jobs *ina_ps_jobs_create(void)
{
    return calloc(1, sizeof(struct ina_ps_jobs));
}

void ina_ps_jobs_destroy(struct ina_ps_jobs *jobs)
{
    if (!jobs)
        return;
    for (int i = 0; i < JOBS; i++)
        free(jobs->job[i].state);
    free(jobs);
}

int ina_ps_jobs_add(struct ina_ps_jobs *jobs, const struct ina_ps_config *config, uint64_t now)
{
    const size_t size = ina_ps_state_size(config);
    if (!size || config->job >= JOBS)
        return -EINVAL;
    struct job *job = &jobs->job[config->job];
    if (job->state)
        return -EEXIST;
    void *state = aligned_alloc(64, (size + 63) & ~(size_t)63);
    if (!state)
        return -ENOMEM;
    const int bad = ina_ps_init(state, config, now);
    if (bad) {
        free(state);
        return bad;
    }
    *job = (struct job){.state = state, .stats_offset = ina_ps_stats_offset(config)};
    return 0;
}

static struct job *find(const struct ina_ps_jobs *jobs, uint32_t number)
{
    return number < JOBS && jobs->job[number].state ? (struct job *)&jobs->job[number] : NULL;
}

int ina_ps_jobs_remove(struct ina_ps_jobs *jobs, uint32_t number)
{
    struct job *job = find(jobs, number);
    if (!job)
        return -ENOENT;
    free(job->state);
    *job = (struct job){0};
    return 0;
}

int ina_ps_jobs_stats(const struct ina_ps_jobs *jobs, uint32_t number, struct ina_ps_stats *stats)
{
    const struct job *job = find(jobs, number);
    if (!job)
        return -ENOENT;
    memcpy(stats, (const uint8_t *)job->state + job->stats_offset, sizeof *stats);
    return 0;
}

uint64_t ina_ps_jobs_strangers(const struct ina_ps_jobs *jobs)
{
    return jobs->strangers;
}

/* ---- as a machine */

static int receive(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    (void)tensors;
    struct ina_ps_jobs *jobs = state;
    for (int i = 0; i < n; i++) {
        const int number = ina_ps_job_of(&pkts[i]);
        struct job *job = number < 0 ? NULL : find(jobs, (uint32_t)number);
        if (!job) {
            jobs->strangers++;
            continue;
        }
        ina_ps_receive(job->state, &pkts[i], now);
        job->waits = 1;
    }
    return 0;
}

static int frames_to_send(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    (void)tensors;
    struct ina_ps_jobs *jobs = state;
    int filled = 0;
    for (int idle = 0; idle < JOBS && filled < n; jobs->turn = (jobs->turn + 1) % JOBS) {
        struct job *job = &jobs->job[jobs->turn];
        idle++;
        if (!job->waits)
            continue;
        const int want = n - filled < SHARE ? n - filled : SHARE;
        const int sent = ina_ps_frames_to_send(job->state, pkts + filled, want, now);
        job->waits = sent == want;
        filled += sent;
        if (sent)
            idle = 0;
    }
    return filled;
}

static int next_handle(const void *state)
{
    (void)state;
    return -EPIPE;
}

static int submit(void *state, const struct ina_tensor *tensors, int handle, uint64_t now)
{
    (void)state, (void)tensors, (void)handle, (void)now;
    return -EPIPE;
}

static int events(void *state, struct ina_event *events, int max)
{
    (void)state, (void)events, (void)max;
    return 0;
}

const struct ina_protocol ina_ps_machine = {
    .name = "parameter server",
    .reductions = 1 << INA_SUM,
    .receive = receive,
    .frames_to_send = frames_to_send,
    .next_timer = ina_ps_next_timer,
    .next_handle = next_handle,
    .submit = submit,
    .events = events,
};
