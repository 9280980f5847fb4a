#include "sim/spool.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_RECORDS 64

/* A chunk as it lies in the file, followed by its records; the chunks of a writer are chained. */
struct chunk {
	int64_t next; /* offset, 0: none yet */
	uint64_t n;
};

struct writer {
	int64_t first, last; /* offsets of its chunks, 0: none */
	uint64_t n;          /* records in the buffer */
	char *buffer;        /* [CHUNK_RECORDS][record_bytes]; NULL until the first record and after the end */
};

struct gm_spool {
	FILE *file;
	int64_t end;
	size_t record_bytes;
	uint32_t n_writer;
	struct writer *writer; /* [n_writer] */
	struct gm_error failed;
};

struct gm_spool *gm_spool_new(uint32_t n_writer, size_t record_bytes, struct gm_error *err)
{
	struct gm_spool *spool = gm_alloc(1, sizeof(*spool), err);

	if (!spool)
		return NULL;
	spool->record_bytes = record_bytes;
	spool->n_writer = n_writer;
	spool->end = 1; /* 0 stands for no chunk */
	spool->writer = gm_alloc(n_writer, sizeof(*spool->writer), err);
	spool->file = spool->writer ? tmpfile() : NULL;
	if (!spool->file) {
		gm_fail(err, GM_ERR_IO, "cannot make a temporary file: %s", strerror(errno));
		gm_spool_free(spool);
		return NULL;
	}
	return spool;
}

void gm_spool_free(struct gm_spool *spool)
{
	if (!spool)
		return;
	for (uint32_t i = 0; spool->writer && i < spool->n_writer; i++)
		free(spool->writer[i].buffer);
	free(spool->writer);
	if (spool->file)
		fclose(spool->file);
	free(spool);
}

static void fail(struct gm_spool *spool, const char *what)
{
	gm_fail(&spool->failed, GM_ERR_IO, "cannot %s: temporary file: %s", what,
		errno ? strerror(errno) : "it is cut off");
}

static bool write_at(struct gm_spool *spool, int64_t offset, const void *data, size_t size)
{
	const char *bytes = data;

	while (size > 0) {
		ssize_t n = pwrite(fileno(spool->file), bytes, size, offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			fail(spool, "write");
			return false;
		}
		bytes += n;
		offset += n;
		size -= (size_t)n;
	}
	return true;
}

static bool read_at(struct gm_spool *spool, int64_t offset, void *data, size_t size)
{
	char *bytes = data;

	while (size > 0) {
		errno = 0;
		ssize_t n = pread(fileno(spool->file), bytes, size, offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			fail(spool, "read");
			return false;
		}
		bytes += n;
		offset += n;
		size -= (size_t)n;
	}
	return true;
}

static void flush(struct gm_spool *spool, struct writer *w)
{
	struct chunk chunk = {.n = w->n};
	int64_t at = spool->end;
	size_t size = (size_t)w->n * spool->record_bytes;

	if (w->n == 0 || spool->failed.code)
		return;
	if (!write_at(spool, at, &chunk, sizeof(chunk)) || !write_at(spool, at + (int64_t)sizeof(chunk), w->buffer, size))
		return;
	if (w->last && !write_at(spool, w->last, &at, sizeof(at)))
		return;
	w->first = w->first ? w->first : at;
	w->last = at;
	w->n = 0;
	spool->end = at + (int64_t)(sizeof(chunk) + size);
}

void gm_spool_put(struct gm_spool *spool, uint32_t writer, const void *record)
{
	struct writer *w = &spool->writer[writer];

	if (!w->buffer && !(w->buffer = gm_alloc(CHUNK_RECORDS, spool->record_bytes, &spool->failed)))
		return;
	if (w->n == CHUNK_RECORDS)
		flush(spool, w);
	if (spool->failed.code)
		return;
	memcpy(w->buffer + w->n++ * spool->record_bytes, record, spool->record_bytes);
}

int gm_spool_end(struct gm_spool *spool, uint32_t writer, struct gm_error *err)
{
	struct writer *w = &spool->writer[writer];

	flush(spool, w);
	free(w->buffer);
	w->buffer = NULL;
	return spool->failed.code ? gm_fail(err, spool->failed.code, "%s", spool->failed.text) : GM_OK;
}

int gm_spool_read(struct gm_spool *spool, uint32_t writer, void (*each)(void *user, const void *record), void *user,
		  struct gm_error *err)
{
	char *records = gm_alloc(CHUNK_RECORDS, spool->record_bytes, err);
	struct chunk chunk = {.next = spool->writer[writer].first};

	if (!records)
		return GM_ERR_MEMORY;
	while (chunk.next && !spool->failed.code) {
		int64_t at = chunk.next;
		if (!read_at(spool, at, &chunk, sizeof(chunk)) ||
		    !read_at(spool, at + (int64_t)sizeof(chunk), records, (size_t)chunk.n * spool->record_bytes))
			break;
		for (uint64_t i = 0; i < chunk.n; i++)
			each(user, records + i * spool->record_bytes);
	}
	free(records);
	return spool->failed.code ? gm_fail(err, spool->failed.code, "%s", spool->failed.text) : GM_OK;
}
