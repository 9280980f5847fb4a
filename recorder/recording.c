/* The writing thread and its queue (see recording.h). */
#include "recorder/recording.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum job_kind { JOB_SEQUENCE, JOB_TOKENS, JOB_ROWS, JOB_COMPLETE };

struct job {
	struct job *next;
	enum job_kind kind;
	size_t size, capacity; /* bytes of data */
	uint32_t first, n;     /* rows of a pass; JOB_TOKENS: n tokens */
	uint32_t layer, position;
	bool has_logprob;
	_Alignas(16) char data[]; /* rows; tokens and log-probabilities; id and label with their NULs */
};

struct list {
	struct job *head, **tail;
};

struct gm_recording {
	struct gm_writer *writer;
	uint32_t n_expert;
	size_t max_bytes;
	pthread_t thread;
	bool started;
	struct list pass;    /* rows of the pass under way; the caller's thread's own */
	uint64_t first, end; /* tokens of the pass that is being written; the writing thread's own */

	pthread_mutex_t lock; /* for all below */
	pthread_cond_t filled, emptied;
	struct list waiting;
	struct job *spare; /* used up, to be used again: large blocks from malloc cost a page fault a page each time */
	size_t bytes;      /* waiting and in the writer's hands */
	bool ending;
	uint64_t written;
	struct gm_error err;
};

static void list_init(struct list *list)
{
	list->head = NULL;
	list->tail = &list->head;
}

static void list_append(struct list *list, struct job *job)
{
	job->next = NULL;
	*list->tail = job;
	list->tail = &job->next;
}

static void list_free(struct job *job)
{
	while (job) {
		struct job *next = job->next;

		free(job);
		job = next;
	}
}

/* --- the writing thread --- */

static int do_job(struct gm_recording *r, const struct job *job, struct gm_error *err)
{
	const void *data = job->data;

	switch (job->kind) {
	case JOB_SEQUENCE:
		return gm_writer_begin_sequence(r->writer, job->data, job->data + strlen(job->data) + 1, err);
	case JOB_TOKENS:
		GM_TRY(gm_writer_add_tokens(r->writer, job->n, data, job->position, true,
					    job->has_logprob ? (const float *)data + job->n : NULL, &r->first, err));
		r->end = r->first + job->n;
		return 0;
	case JOB_ROWS:
		return gm_writer_append(r->writer, job->layer, r->first + job->first, job->n, data, r->n_expert, err);
	case JOB_COMPLETE:
		return gm_writer_complete(r->writer, r->end, err);
	}
	return 0;
}

/* Called with the lock held, and returns with it held. After a failure jobs are only taken away, so that nobody waits for ever. */
static void write_next(struct gm_recording *r)
{
	struct job *job = r->waiting.head;
	struct gm_error err = {0};

	r->waiting.head = job->next;
	if (!r->waiting.head)
		r->waiting.tail = &r->waiting.head;
	if (!r->err.code) {
		pthread_mutex_unlock(&r->lock);
		do_job(r, job, &err);
		pthread_mutex_lock(&r->lock);
		r->err = err;
	}
	r->written = gm_writer_bytes(r->writer);
	r->bytes -= job->size;
	job->next = r->spare;
	r->spare = job;
	pthread_cond_signal(&r->emptied);
}

static void *write_all(void *user)
{
	struct gm_recording *r = user;

	pthread_mutex_lock(&r->lock);
	for (;;) {
		while (!r->waiting.head && !r->ending)
			pthread_cond_wait(&r->filled, &r->lock);
		if (!r->waiting.head)
			break;
		write_next(r);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* --- the caller's thread --- */

struct gm_recording *gm_recording_open(struct gm_writer *writer, uint32_t n_expert, size_t max_bytes, struct gm_error *err)
{
	struct gm_recording *r = gm_alloc(1, sizeof(*r), err);

	if (!r) {
		gm_writer_discard(writer);
		return NULL;
	}
	r->writer = writer;
	r->n_expert = n_expert;
	r->max_bytes = max_bytes;
	list_init(&r->pass);
	list_init(&r->waiting);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->filled, NULL);
	pthread_cond_init(&r->emptied, NULL);
	if (pthread_create(&r->thread, NULL, write_all, r) != 0) {
		gm_fail(err, GM_ERR_MEMORY, "no thread for writing can be started");
		gm_writer_discard(r->writer);
		r->writer = NULL;
		gm_recording_close(r, false, NULL, NULL);
		return NULL;
	}
	r->started = true;
	return r;
}

/* A spare job that is large enough, but not absurdly so. */
static struct job *take_spare(struct gm_recording *r, size_t size)
{
	for (struct job **at = &r->spare; *at; at = &(*at)->next) {
		struct job *job = *at;

		if (job->capacity >= size && job->capacity <= 4 * size + 4096) {
			*at = job->next;
			return job;
		}
	}
	return NULL;
}

/* Waits for room and reserves it. NULL: memory, or what the writing thread met. */
static struct job *new_job(struct gm_recording *r, enum job_kind kind, size_t size, struct gm_error *err)
{
	struct job *job = NULL, *unfit = NULL;
	bool failed;

	pthread_mutex_lock(&r->lock);
	/* when nothing waits any more there is nothing to wait for: what is left belongs to the pass under way */
	while (!r->err.code && r->waiting.head && r->bytes + size > r->max_bytes)
		pthread_cond_wait(&r->emptied, &r->lock);
	failed = r->err.code != 0;
	if (failed) {
		gm_fail(err, r->err.code, "%s", r->err.text);
	} else {
		job = take_spare(r, size);
		if (!job) { /* none fits: do not let those pile up either */
			unfit = r->spare;
			r->spare = NULL;
		}
		r->bytes += size;
	}
	pthread_mutex_unlock(&r->lock);
	list_free(unfit);
	if (failed)
		return NULL;
	if (!job) {
		job = gm_alloc(1, sizeof(*job) + size, err);
		if (!job)
			return NULL;
		job->capacity = size;
	}
	job->kind = kind;
	job->size = size;
	return job;
}

/* Why there was no job: new_job has recorded it. */
static int no_job(const struct gm_error *err)
{
	return err && err->code ? err->code : GM_ERR_MEMORY;
}

/* Jobs from head to the end of its list, in order. */
static void hand_over(struct gm_recording *r, struct job *head)
{
	pthread_mutex_lock(&r->lock);
	while (head) {
		struct job *next = head->next;

		list_append(&r->waiting, head);
		head = next;
	}
	pthread_cond_signal(&r->filled);
	pthread_mutex_unlock(&r->lock);
}

int gm_recording_begin_sequence(struct gm_recording *r, const char *id, const char *label, struct gm_error *err)
{
	size_t id_size = (id ? strlen(id) : 0) + 1, label_size = (label ? strlen(label) : 0) + 1;
	struct job *job = new_job(r, JOB_SEQUENCE, id_size + label_size, err);

	if (!job)
		return no_job(err);
	memcpy(job->data, id ? id : "", id_size);
	memcpy(job->data + id_size, label ? label : "", label_size);
	job->next = NULL;
	hand_over(r, job);
	return 0;
}

int gm_recording_append(struct gm_recording *r, uint32_t layer, uint32_t first, uint32_t n, const float *logits,
			struct gm_error *err)
{
	size_t size = (size_t)n * r->n_expert * sizeof(*logits);
	struct job *job = new_job(r, JOB_ROWS, size, err);

	if (!job)
		return no_job(err);
	job->layer = layer;
	job->first = first;
	job->n = n;
	memcpy(job->data, logits, size);
	list_append(&r->pass, job);
	return 0;
}

int gm_recording_commit(struct gm_recording *r, uint32_t n, const int32_t *token, uint32_t position, const float *logprob,
			struct gm_error *err)
{
	struct job *tokens = new_job(r, JOB_TOKENS, n * (sizeof(*token) + sizeof(*logprob)), err);
	struct job *complete = tokens ? new_job(r, JOB_COMPLETE, 0, err) : NULL;

	if (!complete) {
		free(tokens);
		return no_job(err);
	}
	tokens->n = n;
	tokens->position = position;
	tokens->has_logprob = logprob != NULL;
	memcpy(tokens->data, token, n * sizeof(*token));
	if (logprob)
		memcpy(tokens->data + n * sizeof(*token), logprob, n * sizeof(*logprob));
	list_append(&r->pass, complete);
	tokens->next = r->pass.head;
	hand_over(r, tokens);
	list_init(&r->pass);
	return 0;
}

void gm_recording_drop(struct gm_recording *r)
{
	pthread_mutex_lock(&r->lock);
	for (const struct job *job = r->pass.head; job; job = job->next)
		r->bytes -= job->size;
	pthread_mutex_unlock(&r->lock);
	list_free(r->pass.head);
	list_init(&r->pass);
}

uint64_t gm_recording_bytes(struct gm_recording *r)
{
	uint64_t written;

	pthread_mutex_lock(&r->lock);
	written = r->written;
	pthread_mutex_unlock(&r->lock);
	return written;
}

static void join(struct gm_recording *r)
{
	if (!r->started)
		return;
	pthread_mutex_lock(&r->lock);
	r->ending = true;
	pthread_cond_signal(&r->filled);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
}

static int close_writer(struct gm_recording *r, bool good, struct gm_recording_end *end, struct gm_error *err)
{
	int flushed;

	if (!good || r->err.code) {
		end->bytes = gm_writer_bytes(r->writer);
		end->n_kept = gm_writer_abandon(r->writer);
		return r->err.code ? gm_fail(err, r->err.code, "%s", r->err.text) : 0;
	}
	flushed = gm_writer_flush(r->writer, err);
	end->bytes = gm_writer_bytes(r->writer);
	if (flushed < 0) {
		end->n_kept = gm_writer_abandon(r->writer);
		return flushed;
	}
	return gm_writer_close(r->writer, err);
}

int gm_recording_close(struct gm_recording *r, bool good, struct gm_recording_end *end, struct gm_error *err)
{
	struct gm_recording_end unused = {0};
	int status = 0;

	if (!r)
		return 0;
	join(r);
	if (r->writer)
		status = close_writer(r, good, end ? end : &unused, err);
	list_free(r->pass.head);
	list_free(r->waiting.head);
	list_free(r->spare);
	pthread_cond_destroy(&r->filled);
	pthread_cond_destroy(&r->emptied);
	pthread_mutex_destroy(&r->lock);
	free(r);
	return status;
}
