/* Threads of this library. A file that includes it defines _GNU_SOURCE first. */
#ifndef INA_THREAD_H
#define INA_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Starts a thread that takes no signals: those are for the program's own threads. 0 or an errno. */
static inline int ina_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error)
        pthread_setname_np(*thread, name);
    return error;
}

#endif
