/* Threads. The one file that knows OpenMP; without it everything runs on the calling thread. */
#include "parallel.h"
#include "cnorm.h"
#include "cpu.h"

#include <stdatomic.h>

#ifdef _OPENMP
#include <omp.h>
#ifdef __linux__
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#define CN_PLACES 1
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define CN_FORKS 1
#endif
#endif

/* Measured on two cores: waking a team costs a few microseconds, what one core moves in the cache in that time. */
#define PARALLEL_BYTES (256 * 1024)
#define THREADS_MOST 1024 /* whatever is asked for: OpenMP ends the process when it cannot have them */
#define TASK_BYTES (128 * 1024)
#define OWN_CACHE_BYTES (2 * 1024 * 1024)

static atomic_int chosen_threads = 0; /* 0: OpenMP's own default */

#ifdef CN_FORKS
/* libgomp's team does not survive fork(): a child that enters a parallel region after its parent did hangs. So a child
 * computes serially, with the same bits. */
static atomic_bool forked = false;
static void mark_child(void) { forked = true; }
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, mark_child); }
#endif

#ifdef CN_PLACES
/* The C library's, of which its headers tell no program that asks for C11 alone. */
extern int sched_getcpu(void);
extern long syscall(long number, ...);

/* Sends the calling thread away from this CPU, and then lets it run where it might before. */
static void leave_cpu(int cpu)
{
    unsigned long all[128] = {0}, others[128];
    const size_t bits = 8 * sizeof all[0];
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof all, all);
    if (bytes <= 0)
        return;
    memcpy(others, all, sizeof all);
    others[(size_t)cpu / bits] &= ~(1ul << (size_t)cpu % bits);
    if (syscall(SYS_sched_setaffinity, 0, (size_t)bytes, others) == 0) /* not if there is no other CPU */
        (void)syscall(SYS_sched_setaffinity, 0, (size_t)bytes, all);
}

static inline int current_cpu(void) { return sched_getcpu(); }
static inline void let_others_run(void) { (void)sched_yield(); }
#elif defined(_OPENMP)
static inline int current_cpu(void) { return -1; }
static inline void leave_cpu(int cpu) { (void)cpu; }
static inline void let_others_run(void) {}
#endif

int cnorm_get_num_threads(void)
{
#ifdef _OPENMP
    int chosen = atomic_load_explicit(&chosen_threads, memory_order_relaxed);
    return chosen > 0 ? chosen : omp_get_max_threads();
#else
    return 1;
#endif
}

cnorm_status cnorm_set_num_threads(int threads)
{
    if (threads < 1)
        return CNORM_ERROR_VALUE;
    atomic_store_explicit(&chosen_threads, threads, memory_order_relaxed);
    return CNORM_OK;
}

static bool may_fork_team(void)
{
#ifdef _OPENMP
#ifdef CN_FORKS
    if (forked)
        return false;
#endif
    return !omp_in_parallel();
#else
    return false;
#endif
}

cn_work cn_plan_work(size_t bytes, size_t output_bytes)
{
    cn_work work = {.threads = 1};
    if (bytes >= PARALLEL_BYTES && may_fork_team()) {
        work.threads = cnorm_get_num_threads() < THREADS_MOST ? cnorm_get_num_threads() : THREADS_MOST;
        size_t useful = bytes / (PARALLEL_BYTES / 2);
        if ((size_t)work.threads > useful)
            work.threads = (int)useful;
    }
    work.far = bytes >= OWN_CACHE_BYTES;
    work.stream = cn_past_caches(bytes, output_bytes);
    return work;
}

#ifdef _OPENMP
#define SHARES_MOST 64

/* Neighbouring tasks; each share on a cache line of its own. */
typedef struct {
    atomic_size_t next;
    size_t end;
    char apart[64 - 2 * sizeof(size_t)];
} team_share;

typedef struct {
    cn_work work;
    void (*task)(void *job, size_t i);
    void *job;
    int cpu;            /* the caller's */
    atomic_int arrived; /* threads but for the caller */
    size_t shares;
    team_share share[SHARES_MOST];
} team_job;

/* A thread that has slept is often woken on the CPU of the one that woke it, above all in virtual machines, whose idle CPUs
 * count as taken by others. The two would take turns there, call after call. So the caller lets it start, and it leaves. */
static void arrive(team_job *team, int number)
{
    if (number == 0)
        return;
    atomic_fetch_add_explicit(&team->arrived, 1, memory_order_relaxed);
    if (team->cpu >= 0 && current_cpu() == team->cpu)
        leave_cpu(team->cpu);
}

static void let_in(team_job *team, int number, int threads)
{
    if (number == 0 && atomic_load_explicit(&team->arrived, memory_order_relaxed) < threads - 1)
        let_others_run();
}

static void share_out(team_job *team, size_t tasks)
{
    size_t threads = (size_t)team->work.threads;
    team->shares = team->work.stream ? 1 : threads < SHARES_MOST ? threads : SHARES_MOST;
    size_t each = tasks / team->shares, more = tasks % team->shares, first = 0;
    for (size_t s = 0; s < team->shares; s++, first = team->share[s - 1].end) {
        atomic_init(&team->share[s].next, first);
        team->share[s].end = first + each + (s < more);
    }
}

static void take_share(team_job *team, size_t s, int number, int threads)
{
    team_share *share = &team->share[s];
    for (size_t i, n = 0; (i = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed)) < share->end; n++) {
        team->task(team->job, i);
        if (n == 0)
            let_in(team, number, threads);
    }
}

/* Each thread has the same share at each call, so that a core finds in its own cache what it wrote there in the last one. Of
 * data beyond those caches whoever is done goes on with what others have left: a core that has neighbours to wait for is
 * slower than another. Beyond all caches there is one share for all. */
static void join_team(team_job *team)
{
    int number = omp_get_thread_num(), threads = omp_get_num_threads();
    arrive(team, number);
    for (size_t s = (size_t)number; s < team->shares; s += (size_t)threads)
        take_share(team, s, number, threads);
    for (size_t s = 1; s <= (team->work.far || team->work.stream ? team->shares : 0); s++)
        take_share(team, ((size_t)number + s) % team->shares, number, threads);
}
#endif

void cn_parallel_for(size_t tasks, cn_work work, void (*task)(void *job, size_t i), void *job)
{
#ifdef _OPENMP
    if (work.threads > 1 && tasks > 1) {
        team_job team = {.work = work, .task = task, .job = job, .cpu = current_cpu()};
        share_out(&team, tasks);
#pragma omp parallel num_threads(work.threads)
        join_team(&team);
        return;
    }
#endif
    (void)work;
    for (size_t i = 0; i < tasks; i++)
        task(job, i);
}

size_t cn_groups_per_task(size_t groups, size_t group_bytes, int threads)
{
    if (threads == 1)
        return groups;
    size_t by_bytes = TASK_BYTES / (group_bytes ? group_bytes : 1), by_balance = groups / ((size_t)threads * 2);
    size_t n = by_bytes < by_balance ? by_bytes : by_balance;
    return n ? n : 1;
}

bool cn_few_groups(size_t groups, size_t pieces) { return groups < CN_FEW_GROUPS && pieces > 1; }
