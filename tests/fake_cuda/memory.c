/* The stand-in's memory, and who touches which bytes in which order. Called with the lock held. */
#include "tests/fake_cuda/fake_private.h"

#include <stdlib.h>
#include <string.h>

static size_t *used_of(enum memory_kind kind)
{
	return kind == MEMORY_DEVICE ? &fake.device_used : &fake.pinned_used;
}

cudaError_t fake_memory_new(enum memory_kind kind, int device, size_t size, void **data)
{
	size_t limit = kind == MEMORY_DEVICE ? fake.options.device_bytes : fake.options.pinned_bytes;
	struct memory *m = fake.memory;

	while (m < fake.memory + FAKE_MAX_MEMORY && m->kind != MEMORY_FREE)
		m++;
	if (m == fake.memory + FAKE_MAX_MEMORY || (limit && *used_of(kind) + size > limit))
		return cudaErrorMemoryAllocation;
	/* not zero: what was never written must not look like anything */
	m->data = malloc(size ? size : 1);
	if (!m->data)
		return cudaErrorMemoryAllocation;
	memset(m->data, 0xa5, size);
	m->kind = kind;
	m->size = size;
	m->device = device;
	*used_of(kind) += size;
	*data = m->data;
	return cudaSuccess;
}

struct memory *fake_memory_find(const void *data)
{
	const char *at = data;

	for (struct memory *m = fake.memory; m < fake.memory + FAKE_MAX_MEMORY; m++)
		if (m->kind != MEMORY_FREE && at >= m->data && at < m->data + m->size)
			return m;
	return NULL;
}

static bool was_seen(const struct access *access, const struct clock *clock)
{
	return access->work <= clock->seen[access->stream];
}

/* What the host has seen end comes before all that it enqueues from now on. */
static void forget_seen(struct memory *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n_access; i++)
		if (!was_seen(&m->access[i], &fake.host))
			m->access[n++] = m->access[i];
	m->n_access = n;
}

cudaError_t fake_memory_delete(enum memory_kind kind, void *data)
{
	struct memory *m = fake_memory_find(data);

	if (!data)
		return cudaSuccess;
	if (!m || m->data != data || m->kind != kind) {
		fake_problem("what is freed was not allocated, or freed before");
		return cudaErrorInvalidValue;
	}
	forget_seen(m);
	if (m->n_access > 0 || m->host_reads)
		fake_problem("memory is freed while in use");
	*used_of(kind) -= m->size;
	m->kind = MEMORY_FREED; /* kept until the reset, so that later use is seen */
	return cudaSuccess;
}

static void note_access(struct memory *m, const struct access *access)
{
	if (m->n_access == m->max_access) {
		m->max_access = m->max_access ? 2 * m->max_access : 64;
		m->access = realloc(m->access, m->max_access * sizeof(*m->access));
		if (!m->access)
			abort();
	}
	m->access[m->n_access++] = *access;
}

static const char *kind_name(const struct memory *m)
{
	return m->kind == MEMORY_PINNED ? "pinned" : "device";
}

static void check_access(const struct memory *m, const struct access *access, const struct clock *clock)
{
	for (size_t i = 0; i < m->n_access; i++) {
		const struct access *old = &m->access[i];

		if (old->begin < access->end && access->begin < old->end && (old->write || access->write) &&
		    !was_seen(old, clock))
			fake_problem("%s memory: a %s on stream %u is not ordered after a %s on stream %u", kind_name(m),
				     access->write ? "write" : "read", access->stream, old->write ? "write" : "read",
				     old->stream);
	}
	if (access->write && m->host_reads && access->begin < m->host_end && m->host_begin < access->end)
		fake_problem("%s memory: a write on stream %u while the host reads", kind_name(m), access->stream);
}

bool fake_memory_touch(const void *data, size_t pitch, size_t width, size_t height, bool write, bool must_be_ours,
		       const struct CUstream_st *stream)
{
	struct memory *m = fake_memory_find(data);
	struct access access = {.write = write, .stream = stream->id, .work = stream->enqueued};

	if (width == 0 || height == 0)
		return true;
	if (!m)
		return !must_be_ours;
	access.begin = (size_t)((const char *)data - m->data);
	access.end = access.begin + (height - 1) * pitch + width;
	if (m->kind == MEMORY_FREED) {
		fake_problem("freed memory is used");
		return false;
	}
	if (access.end > m->size) {
		fake_problem("%s memory: a copy past its end", kind_name(m));
		return false;
	}
	if (must_be_ours && m->kind != MEMORY_DEVICE)
		return false;
	forget_seen(m);
	check_access(m, &access, &stream->clock);
	note_access(m, &access);
	return true;
}

void fake_cuda_host_begin(const void *data, size_t size)
{
	struct memory *m;

	pthread_mutex_lock(&fake.lock);
	m = fake_memory_find(data);
	if (!m || m->kind != MEMORY_PINNED) {
		fake_problem("the host reads what is not pinned memory");
	} else {
		m->host_begin = (size_t)((const char *)data - m->data);
		m->host_end = m->host_begin + size;
		m->host_reads = true;
		for (size_t i = 0; i < m->n_access; i++)
			if (m->access[i].write && m->access[i].begin < m->host_end && m->host_begin < m->access[i].end &&
			    !was_seen(&m->access[i], &fake.host))
				fake_problem("the host reads what a copy on stream %u may still write",
					     m->access[i].stream);
	}
	pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_host_end(const void *data)
{
	struct memory *m;

	pthread_mutex_lock(&fake.lock);
	m = fake_memory_find(data);
	if (m)
		m->host_reads = false;
	pthread_mutex_unlock(&fake.lock);
}

void fake_memory_free_all(void)
{
	for (struct memory *m = fake.memory; m < fake.memory + FAKE_MAX_MEMORY; m++) {
		free(m->data);
		free(m->access);
	}
	memset(fake.memory, 0, sizeof(fake.memory));
	fake.device_used = fake.pinned_used = 0;
}
