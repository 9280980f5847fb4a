/* What the stand-in's files share. Everything is guarded by one lock. */
#ifndef GM_TESTS_FAKE_PRIVATE_H
#define GM_TESTS_FAKE_PRIVATE_H

#include "tests/fake_cuda/fake_cuda.h"

#include <pthread.h>

#define FAKE_MAX_STREAM 32
#define FAKE_MAX_DEVICE 4
#define FAKE_MAX_MEMORY 64

/* What is known to have happened: of every stream all work up to this number. */
struct clock {
	uint64_t seen[FAKE_MAX_STREAM];
};

/* Bytes of one allocation that enqueued work number `work` of a stream reads or writes. */
struct access {
	size_t begin, end;
	bool write;
	unsigned stream;
	uint64_t work;
};

enum memory_kind { MEMORY_FREE, MEMORY_DEVICE, MEMORY_PINNED, MEMORY_FREED };

struct memory {
	enum memory_kind kind;
	char *data;
	size_t size;
	int device;
	struct access *access;
	size_t n_access, max_access;
	bool host_reads; /* between fake_cuda_host_begin and _end */
	size_t host_begin, host_end;
};

enum work_kind { WORK_COPY, WORK_SET, WORK_WAIT, WORK_NOTHING };

struct work {
	struct work *next;
	enum work_kind kind;
	char *to;
	const char *from;
	size_t to_pitch, from_pitch, width, height;
	int value;
	unsigned wait_stream; /* WORK_WAIT: until its work number `wait_work` is done */
	uint64_t wait_work;
};

struct CUstream_st {
	unsigned id;
	int device;
	bool used, destroyed, capturing, ending;
	pthread_t thread;
	struct work *head, **tail;
	uint64_t enqueued, done; /* numbers of work */
	struct clock clock;      /* of the last work enqueued */
};

struct CUevent_st {
	bool destroyed, recorded;
	int device;
	unsigned stream;
	uint64_t work;
	struct clock clock;
	struct CUevent_st *next;
};

struct fake {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct fake_cuda_options options;
	uint64_t random;
	struct CUstream_st stream[FAKE_MAX_STREAM]; /* the first FAKE_MAX_DEVICE: the legacy default streams */
	struct CUevent_st *events;
	unsigned n_event;
	struct memory memory[FAKE_MAX_MEMORY];
	size_t device_used, pinned_used;
	struct clock host;
	unsigned n_call, fail_call, n_copy, fail_copy;
	bool fail_for_ever;
	const char *failed;                       /* the call that last failed by request */
	cudaError_t call_error, copy_error, lost; /* lost: of a copy that failed; all is over */
	char problems[2048];
};

extern struct fake fake;

void fake_problem(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t fake_random(void);
void fake_clock_merge(struct clock *into, const struct clock *from);

int fake_current_device(void); /* of the calling thread */

/* --- memory.c --- */
cudaError_t fake_memory_new(enum memory_kind kind, int device, size_t size, void **data);
cudaError_t fake_memory_delete(enum memory_kind kind, void *data);
struct memory *fake_memory_find(const void *data); /* also what was freed; NULL: not ours */
/* Notes that the work under way on a stream (its clock says what came before) will touch height rows of width bytes. False: they
 * are not all within one allocation of the wanted kind. */
bool fake_memory_touch(const void *data, size_t pitch, size_t width, size_t height, bool write, bool must_be_ours,
		       const struct CUstream_st *stream);
void fake_memory_free_all(void);

/* --- stream.c --- */
struct CUstream_st *fake_stream_new(int device);
struct CUstream_st *fake_stream_of(cudaStream_t stream); /* NULL and a problem: not alive */
void fake_stream_begin_work(struct CUstream_st *stream); /* numbers the next work */
bool fake_stream_add(struct CUstream_st *stream, const struct work *work);
void fake_stream_wait(const struct CUstream_st *stream); /* all that is enqueued */
void fake_stream_end(struct CUstream_st *stream);

#endif
