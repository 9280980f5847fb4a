#include "traces/format_in.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_CHUNK 65536u /* a pipe's buffer grows from here as bytes arrive */

int gm_input_open(struct gm_input *in, const char *path, struct gm_error *err)
{
	bool standard = strcmp(path, "-") == 0;
	struct stat st;

	memset(in, 0, sizeof(*in));
	in->fd = -1;
	in->path = gm_strdup(standard ? "standard input" : path, err);
	if (!in->path)
		return GM_ERR_MEMORY;
	in->fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (in->fd < 0 || fstat(in->fd, &st) != 0) {
		int status = gm_fail(err, GM_ERR_IO, "cannot be opened: %s: %s", path, strerror(errno));
		gm_input_close(in);
		return status;
	}
	if (S_ISDIR(st.st_mode)) {
		int status = gm_fail(err, GM_ERR_IO, "a directory: %s: must be a .gmt trace", path);
		gm_input_close(in);
		return status;
	}
	in->seekable = S_ISREG(st.st_mode) && lseek(in->fd, 0, SEEK_CUR) == 0;
	in->size = in->seekable ? (uint64_t)st.st_size : 0;
	return GM_OK;
}

void gm_input_close(struct gm_input *in)
{
	if (in->fd > STDIN_FILENO)
		close(in->fd);
	free(in->path);
	memset(in, 0, sizeof(*in));
	in->fd = -1;
}

static int cut_off(uint64_t offset, uint64_t wanted, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_FORMAT, "cut off at byte %llu: %llu bytes more must follow", (unsigned long long)offset,
		       (unsigned long long)wanted);
}

/* Up to n bytes; fewer only at the end. */
static int read_some(struct gm_input *in, uint64_t offset, uint8_t *to, size_t n, size_t *got, struct gm_error *err)
{
	*got = 0;
	while (*got < n) {
		ssize_t r = in->seekable ? pread(in->fd, to + *got, n - *got, (off_t)(offset + *got))
					 : read(in->fd, to + *got, n - *got);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return gm_fail(err, GM_ERR_IO, "cannot be read: byte %llu: %s", (unsigned long long)offset + *got,
				       strerror(errno));
		if (r == 0)
			break;
		*got += (size_t)r;
	}
	if (!in->seekable)
		in->offset += *got;
	return GM_OK;
}

int gm_input_fetch(struct gm_input *in, uint64_t offset, uint64_t n, struct gm_buffer *to, struct gm_error *err)
{
	uint64_t chunk = in->seekable ? n : FIRST_CHUNK;

	if (in->seekable && (offset > in->size || n > in->size - offset))
		return cut_off(in->size, offset + n - in->size, err);
	while (n) {
		size_t step = (size_t)(n < chunk ? n : chunk), got;
		GM_TRY(gm_buffer_reserve(to, to->size + step, err));
		GM_TRY(read_some(in, offset, to->data + to->size, step, &got, err));
		to->size += got;
		offset += got;
		n -= got;
		if (got < step)
			return cut_off(offset, n, err);
		chunk *= 2;
	}
	return GM_OK;
}

int gm_input_skip(struct gm_input *in, uint64_t n, struct gm_error *err)
{
	uint8_t scratch[16384];

	while (n) {
		size_t step = n < sizeof(scratch) ? (size_t)n : sizeof(scratch), got;
		GM_TRY(read_some(in, in->offset, scratch, step, &got, err));
		n -= got;
		if (got < step)
			return cut_off(in->offset, n, err);
	}
	return GM_OK;
}

int gm_input_at_end(struct gm_input *in, bool *end, struct gm_error *err)
{
	uint8_t byte;
	size_t got;

	GM_TRY(read_some(in, in->offset, &byte, 1, &got, err));
	*end = got == 0;
	return GM_OK;
}

/* --- header --- */

/* The number of one of the names; an error that lists them. */
static int read_choice(const struct gm_json *object, const char *key, const char *const *names, int n, int *out,
		       struct gm_error *err)
{
	const char *text;

	GM_TRY(gm_json_get_string(object, key, &text, NULL, err));
	for (*out = 0; *out < n; (*out)++)
		if (strcmp(text, names[*out]) == 0)
			return GM_OK;
	return gm_fail(err, GM_ERR_FORMAT, "%s is \"%.40s\": must be %s, %s%s%s", key, text, names[0], names[1],
		       n > 2 ? " or " : "", n > 2 ? names[2] : "");
}

static int read_flag(const struct gm_json *object, const char *key, bool *out, struct gm_error *err)
{
	const struct gm_json *value = gm_json_get(object, key);

	*out = value && gm_json_is_true(value);
	if (value && gm_json_type(value) != GM_JSON_BOOL)
		return gm_fail(err, GM_ERR_FORMAT, "wrong value of %s: must be true or false", key);
	return GM_OK;
}

static int read_geometry(struct gm_header *h, struct gm_error *err)
{
	static const char *const formats[] = {"gatemass-trace", "gatemass-trace"};
	static const char *const kinds[] = {"logits", "topk"};
	static const char *const tails[] = {"none", "f16", "f32"};
	const struct gm_model *m = &h->model;
	int format, kind, tail;
	int64_t n_head;

	GM_TRY(read_choice(h->json, "format", formats, 1, &format, err));
	GM_TRY(gm_model_from_header(&h->model, h->json, err));
	GM_TRY(read_choice(h->json, "kind", kinds, 2, &kind, err));
	GM_TRY(gm_json_get_int(h->json, "head", m->top_k, kind ? m->top_k : m->n_expert, &n_head, NULL, err));
	GM_TRY(read_choice(h->json, "tail", tails, kind ? 1 : 3, &tail, err));
	h->geometry = (struct gm_geometry){.kind = (enum gm_trace_kind)kind,
					   .tail = (enum gm_tail)tail,
					   .n_layer = m->n_layer,
					   .n_expert = m->n_expert,
					   .n_head = (uint32_t)n_head,
					   .top_k = m->top_k};
	GM_TRY(read_flag(h->json, "logprobs", &h->geometry.logprobs, err));
	return read_flag(h->json, "predictions", &h->geometry.predictions, err);
}

int gm_header_parse(struct gm_header *h, const uint8_t *payload, size_t size, struct gm_error *err)
{
	memset(h, 0, sizeof(*h));
	h->json = gm_json_parse((const char *)payload, size, "header", err);
	if (!h->json)
		return err && err->code ? err->code : GM_ERR_FORMAT;
	int status = read_geometry(h, err);
	if (status < 0) {
		gm_error_at(err, "header");
		gm_header_free(h);
	}
	return status;
}

int gm_header_read(struct gm_input *in, struct gm_header *h, struct gm_error *err)
{
	struct gm_buffer data = {0};
	struct gm_frame frame;
	struct gm_error short_file = {0};
	int status;

	/* What there is of the preamble says better than "cut off" that a file is none of ours. */
	status = gm_input_fetch(in, 0, GM_PREAMBLE_BYTES, &data, &short_file);
	if (status == GM_ERR_FORMAT && in->seekable)
		GM_TRY_OUT(gm_input_fetch(in, 0, in->size, &data, err));
	else if (status < 0 && status != GM_ERR_FORMAT)
		GM_TRY_OUT(gm_fail(err, status, "%s", short_file.text));
	GM_TRY_OUT(gm_preamble_check(data.data, data.size, err));
	GM_TRY_OUT(gm_input_fetch(in, GM_PREAMBLE_BYTES, GM_FRAME_BYTES, &data, err));
	GM_TRY_OUT(gm_frame_parse(data.data + GM_PREAMBLE_BYTES, &frame, err));
	if (frame.type != GM_FRAME_HEAD)
		GM_TRY_OUT(gm_fail(err, GM_ERR_FORMAT, "frame %s: byte 16: must be HEAD", frame.name));
	data.size = 0;
	GM_TRY_OUT(gm_input_fetch(in, GM_PREAMBLE_BYTES + GM_FRAME_BYTES, frame.length, &data, err));
	GM_TRY_OUT(gm_frame_check(&frame, data.data, data.size, err));
	GM_TRY_OUT(gm_header_parse(h, data.data, data.size, err));
	h->hash = frame.hash;
	h->end = GM_PREAMBLE_BYTES + GM_FRAME_BYTES + frame.length;
out:
	gm_buffer_free(&data);
	return status;
}

void gm_header_free(struct gm_header *h)
{
	gm_json_free(h->json);
	gm_model_free(&h->model);
	memset(h, 0, sizeof(*h));
}
