/* Preloaded into what starts in a lab from now on: its wall clock is as many seconds off as OFF_FILE says, and may be set while
 * they run. Clocks that nobody can set go on as they are, as on a machine whose date was changed.
 *
 * A wait until a time of day lasts as long as it would have when it began: the kernel would end it at the new time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define TIME_OF_DAY 1000000000 /* absolute times of other clocks are smaller: seconds since the machine was started */

typedef int wait_fn(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
typedef int set_fn(timer_t, int, const struct itimerspec *, struct itimerspec *);

static time_t off_s(void)
{
	static const volatile int64_t *shared;

	if (!shared) {
		int fd = open(OFF_FILE, O_RDONLY | O_CLOEXEC);
		void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*shared), PROT_READ, MAP_SHARED, fd, 0);

		if (fd >= 0)
			close(fd);
		if (page == MAP_FAILED)
			return 0;
		shared = page;
	}
	return *shared;
}

static struct timespec by_kernel(struct timespec at)
{
	if (at.tv_sec > TIME_OF_DAY)
		at.tv_sec -= off_s();
	return at;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int rc = syscall(SYS_clock_gettime, clock, now);

	if (!rc && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
		now->tv_sec += off_s();
	return rc;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec exact;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &exact);
	now->tv_sec = exact.tv_sec;
	now->tv_usec = exact.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *to)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (to)
		*to = now.tv_sec;
	return now.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
	static wait_fn *true_wait;
	struct timespec at = by_kernel(*until);

	if (!true_wait)
		true_wait = (wait_fn *)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
	return true_wait(cond, mutex, &at);
}

int timer_settime(timer_t timer, int flags, const struct itimerspec *when, struct itimerspec *before)
{
	static set_fn *true_set;
	struct itimerspec then = *when;

	if (flags & TIMER_ABSTIME)
		then.it_value = by_kernel(then.it_value);
	if (!true_set)
		true_set = (set_fn *)dlsym(RTLD_NEXT, "timer_settime");
	return true_set(timer, flags, &then, before);
}
