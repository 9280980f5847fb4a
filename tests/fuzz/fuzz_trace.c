/* libFuzzer: reader, verify and repair of `.gmt` traces.
 *
 * The first byte of an input says how the rest, a trace, is treated: bit 0 makes all checksums right first (else little but checksums
 * is ever reached), bit 1 reads it through a pipe, bit 2 repairs it and verifies what came out. */
#include "rehash.h"

#include "traces/reader.h"
#include "traces/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const char *path)
{
	struct gm_error err = {0};
	struct gm_block block = {0};
	struct gm_trace *trace = gm_trace_open(path, &err);
	int status = trace ? 1 : 0;

	for (uint64_t i = 0; status == 1; i++) {
		status = gm_trace_read(trace, i, (unsigned)(3 - i % 4), &block, &err);
		if (status != 1 || !block.present[0])
			continue;
		float *logits = malloc(gm_trace_model(trace)->n_expert * sizeof(*logits));
		if (logits)
			gm_block_logits(&block, gm_trace_model(trace), 0, 0, logits);
		free(logits);
	}
	gm_block_free(&block);
	gm_trace_close(trace);
}

static void read_piped(const uint8_t *data, size_t size)
{
	int ends[2];
	char path[40];

	if (size > 65536 || pipe(ends) != 0) /* a pipe holds this much without a reader */
		return;
	if (write(ends[1], data, size) == (ssize_t)size) {
		close(ends[1]);
		snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]);
		read_all(path);
	} else {
		close(ends[1]);
	}
	close(ends[0]);
}

static void repair(const char *path)
{
	struct gm_repair_report repaired;
	struct gm_verify_report verified;
	struct gm_error err = {0};
	char out[60];

	snprintf(out, sizeof(out), "/dev/shm/gm-fuzz-%d.gmt", (int)getpid());
	if (gm_trace_repair(path, out, &repaired, &err) == GM_OK) {
		struct gm_trace *trace = gm_trace_open(out, &err);
		if (!trace || repaired.n_token != gm_trace_n_token(trace))
			abort();
		gm_trace_close(trace);
		gm_trace_verify(out, &verified, &err);
	}
	unlink(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gm_verify_report report;
	struct gm_error err = {0};
	char path[40];

	if (size < 1)
		return 0;
	uint8_t mode = data[0], *copy = malloc(size);
	if (!copy)
		return 0;
	memcpy(copy, data + 1, --size);
	if (mode & 1)
		rehash(copy, size);
	if (mode & 2)
		read_piped(copy, size);
	int fd = memfd_create("trace", 0);
	if (fd >= 0 && write(fd, copy, size) == (ssize_t)size) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		read_all(path);
		gm_trace_verify(path, &report, &err);
		if (mode & 4)
			repair(path);
	}
	if (fd >= 0)
		close(fd);
	free(copy);
	return 0;
}
