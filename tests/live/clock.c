/* Preloaded into what starts in a lab from now on: its wall clock is as many seconds off as OFF_FILE says, and runs as many
 * times as fast; both may be set while they run. Clocks that nobody can set go on as they are, as on a machine whose date was
 * changed.
 *
 * A wait until a time of day lasts as long as it would have when it began: the kernel would end it at the new time. A sleep is
 * shorter by the rate. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define TIME_OF_DAY 1000000000 /* absolute times of other clocks are smaller: seconds since the machine was started */
#define SECOND INT64_C(1000000000)

typedef int wait_fn(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
typedef int set_fn(timer_t, int, const struct itimerspec *, struct itimerspec *);

static const volatile int64_t *setting(void) /* seconds off, rate, Unix time at which the rate began */
{
	static const int64_t none[3] = {0, 1, 0};
	static const volatile int64_t *shared;

	if (!shared) {
		int fd = open(OFF_FILE, O_RDONLY | O_CLOEXEC);
		void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(none), PROT_READ, MAP_SHARED, fd, 0);

		if (fd >= 0)
			close(fd);
		if (page == MAP_FAILED)
			return none;
		shared = page;
	}
	return shared;
}

static int64_t rate(void)
{
	return setting()[1];
}

static int64_t nanoseconds(const struct timespec *of)
{
	return of->tv_sec * SECOND + of->tv_nsec;
}

static struct timespec span(int64_t of)
{
	return (struct timespec){.tv_sec = of / SECOND, .tv_nsec = of % SECOND};
}

static struct timespec shown(struct timespec kernel)
{
	const volatile int64_t *set = setting();
	int64_t since = set[2] * SECOND;

	return span(since + (nanoseconds(&kernel) - since) * set[1] + set[0] * SECOND);
}

static struct timespec by_kernel(struct timespec at)
{
	const volatile int64_t *set = setting();
	int64_t since = set[2] * SECOND;

	if (at.tv_sec > TIME_OF_DAY)
		at = span(since + (nanoseconds(&at) - set[0] * SECOND - since) / set[1]);
	return at;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int rc = syscall(SYS_clock_gettime, clock, now);

	if (!rc && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
		*now = shown(*now);
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

static int sleep_for(clockid_t clock, const struct timespec *asked, struct timespec *rest)
{
	struct timespec real = span(nanoseconds(asked) / rate()), left = {0, 0};
	int rc = syscall(SYS_clock_nanosleep, clock, 0, &real, &left) ? errno : 0;

	if (rc == EINTR && rest)
		*rest = span(nanoseconds(&left) * rate());
	return rc;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *asked, struct timespec *rest)
{
	struct timespec at = *asked;

	if (!(flags & TIMER_ABSTIME))
		return sleep_for(clock, asked, rest);
	if (clock == CLOCK_REALTIME || clock == CLOCK_TAI)
		at = by_kernel(at);
	return syscall(SYS_clock_nanosleep, clock, flags, &at, NULL) ? errno : 0;
}

int nanosleep(const struct timespec *asked, struct timespec *rest)
{
	errno = sleep_for(CLOCK_MONOTONIC, asked, rest);
	return errno ? -1 : 0;
}

int usleep(useconds_t asked)
{
	struct timespec span_of = span(asked * INT64_C(1000));

	return nanosleep(&span_of, NULL);
}

unsigned int sleep(unsigned int asked)
{
	struct timespec span_of = {.tv_sec = asked}, left = {0, 0};

	return nanosleep(&span_of, &left) ? left.tv_sec + (left.tv_nsec > 0) : 0;
}
