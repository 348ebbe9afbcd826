/* clockshim.c: preloaded into redis-server, it shifts the wall clock by the microseconds that stand, as an int64, in
 * the file that CLOCKSHIM_FILE names. The file stays mapped, so whoever writes to it steps the clock of the
 * running server. The monotonic clock is left alone, as it is when an administrator or NTP steps a real one.
 *
 * It makes system calls itself. Asking the dynamic linker for the C library's functions, as libfaketime does,
 * allocates memory, which a server with its own allocator does not survive at that point. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none;
static volatile int64_t *offset = &none;

__attribute__((constructor)) static void begin(void)
{
	const char *name = getenv("CLOCKSHIM_FILE");
	int file = name ? open(name, O_RDONLY) : -1;
	if (file < 0)
		return;
	void *page = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
	if (page != MAP_FAILED)
		offset = page;
	close(file);
}

static int shifted(struct timespec *t)
{
	if (syscall(SYS_clock_gettime, CLOCK_REALTIME, t) != 0)
		return -1;
	int64_t micros = (int64_t)t->tv_sec * 1000000 + t->tv_nsec / 1000 + *offset;
	t->tv_nsec = micros % 1000000 * 1000 + t->tv_nsec % 1000;
	t->tv_sec = micros / 1000000;
	return 0;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
		return shifted(t);
	return syscall(SYS_clock_gettime, id, t);
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	(void)zone;
	struct timespec now;
	if (shifted(&now) != 0)
		return -1;
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *to)
{
	struct timespec now;
	if (shifted(&now) != 0)
		return -1;
	if (to)
		*to = now.tv_sec;
	return now.tv_sec;
}
