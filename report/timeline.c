#include "report/timeline.h"

#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_US 1e15

static const struct {
	const char *name;
	enum gm_span_kind kind;
	int lane;
} kinds[] = {
	{"dense", GM_SPAN_DENSE, GM_PICTURE_GPU},
	{"expert", GM_SPAN_EXPERT, GM_PICTURE_GPU},
	{"token", GM_SPAN_TOKEN, GM_PICTURE_GPU},
	{"fetch", GM_SPAN_FETCH, GM_PICTURE_LINK},
	{"background", GM_SPAN_BACKGROUND, GM_PICTURE_LINK},
	{"cpu", GM_SPAN_CPU, GM_PICTURE_CPU},
	{"read", GM_SPAN_READ, GM_PICTURE_DISK},
};
#define N_KIND (sizeof(kinds) / sizeof(*kinds))

void gm_timeline_free(struct gm_timeline_file *file)
{
	free(file->title);
	free(file->span);
	free(file->token);
	*file = (struct gm_timeline_file){0};
}

/* --- events --- */

static int take_span(struct gm_timeline_file *file, const struct gm_json *event, struct gm_error *err)
{
	struct gm_timeline_span *span = &file->span[file->n];
	const struct gm_json *arguments = gm_json_get(event, "args");
	const char *name;
	double length;
	bool found;
	size_t k = 0;

	GM_TRY(gm_json_get_string(event, "name", &name, NULL, err));
	GM_TRY(gm_json_get_number(event, "ts", &span->start, NULL, err));
	GM_TRY(gm_json_get_number(event, "dur", &length, NULL, err));
	if (!(fabs(span->start) <= MAX_US && length >= 0 && length <= MAX_US))
		return gm_fail(err, GM_ERR_FORMAT, "no time: \"dur\": a number of \xc2\xb5s from 0");
	span->end = span->start + length;
	while (k < N_KIND && strcmp(kinds[k].name, name) != 0)
		k++;
	if (k == N_KIND)
		return GM_OK; /* of another program or a later version */
	span->kind = kinds[k].kind;
	span->lane = kinds[k].lane;
	span->layer = span->expert = -1;
	if (arguments) {
		GM_TRY(gm_json_get_int(arguments, "layer", 0, INT32_MAX, &span->layer, &found, err));
		GM_TRY(gm_json_get_int(arguments, "expert", 0, INT32_MAX, &span->expert, &found, err));
	}
	file->n++;
	return GM_OK;
}

static int take_event(struct gm_timeline_file *file, const struct gm_json *event, struct gm_error *err)
{
	const char *phase, *name;

	if (gm_json_type(event) != GM_JSON_OBJECT)
		return gm_fail(err, GM_ERR_FORMAT,
			       "no object: an event is {\"name\": ..., \"ph\": \"X\", \"ts\": ..., \"dur\": ...}");
	GM_TRY(gm_json_get_string(event, "ph", &phase, NULL, err));
	if (strcmp(phase, "X") == 0)
		return take_span(file, event, err);
	name = gm_json_text(gm_json_get(event, "name"));
	if (strcmp(phase, "M") == 0 && name && strcmp(name, "process_name") == 0 && !file->title) {
		const char *title = gm_json_text(gm_json_get(gm_json_get(event, "args"), "name"));

		file->title = gm_strdup(title ? title : "", err);
		return file->title ? GM_OK : GM_ERR_MEMORY;
	}
	return GM_OK;
}

static int by_start(const void *a, const void *b)
{
	const struct gm_timeline_span *p = a, *q = b;

	if (p->start != q->start)
		return p->start < q->start ? -1 : 1;
	if (p->lane != q->lane)
		return p->lane - q->lane;
	return p->end < q->end ? -1 : p->end > q->end;
}

/* --- tokens: a pass begins where a dense part comes that is no deeper than the one before it --- */

static int find_tokens(struct gm_timeline_file *file, const char *path, struct gm_error *err)
{
	int64_t layer = INT64_MAX;
	double end = 0;

	file->token = gm_alloc(file->n + 1, sizeof(*file->token), err);
	if (!file->token)
		return GM_ERR_MEMORY;
	for (size_t i = 0; i < file->n; i++) {
		const struct gm_timeline_span *span = &file->span[i];

		end = fmax(end, span->lane == GM_PICTURE_GPU || span->lane == GM_PICTURE_CPU ? span->end : 0);
		if (span->kind != GM_SPAN_DENSE)
			continue;
		if (span->layer <= layer)
			file->token[file->n_token++] = span->start;
		layer = span->layer;
	}
	file->token[file->n_token] = end;
	if (file->n_token == 0)
		return gm_fail(err, GM_ERR_FORMAT,
			       "no token: %s: there is no \"dense\" event; sim run --trace-events writes such a file",
			       path);
	return GM_OK;
}

/* An expert on the GPU whose copy was waited for since its layer began. */
static void mark_waited(struct gm_timeline_file *file)
{
	for (size_t i = 0, dense = 0; i < file->n; i++) {
		struct gm_timeline_span *span = &file->span[i];

		if (span->kind == GM_SPAN_DENSE)
			dense = i;
		for (size_t k = dense; k < i && span->kind == GM_SPAN_EXPERT; k++)
			if (file->span[k].kind == GM_SPAN_FETCH && file->span[k].layer == span->layer &&
			    file->span[k].expert == span->expert)
				span->kind = GM_SPAN_WAITED;
	}
}

static int read_events(struct gm_timeline_file *file, const struct gm_json *root, const char *path, struct gm_error *err)
{
	/* Chrome's format allows the bare list too. */
	const struct gm_json *events = gm_json_type(root) == GM_JSON_ARRAY ? root : gm_json_get(root, "traceEvents");
	size_t number = 0;

	if (!events || gm_json_type(events) != GM_JSON_ARRAY)
		return gm_fail(err, GM_ERR_FORMAT,
			       "not a timeline: %s: no list \"traceEvents\"; sim run --trace-events writes one", path);
	file->span = gm_alloc(gm_json_size(events), sizeof(*file->span), err);
	if (!file->span)
		return GM_ERR_MEMORY;
	for (const struct gm_json *event = gm_json_first(events); event; event = gm_json_next(event), number++)
		if (take_event(file, event, err) < 0)
			return gm_error_at(err, "%s, event %zu", path, number);
	qsort(file->span, file->n, sizeof(*file->span), by_start);
	mark_waited(file);
	return find_tokens(file, path, err);
}

int gm_timeline_read(struct gm_timeline_file *file, const char *path, struct gm_error *err)
{
	struct gm_json *root = gm_json_parse_file(path, err);
	int status;

	*file = (struct gm_timeline_file){0};
	if (!root)
		return err->code;
	status = read_events(file, root, path, err);
	gm_json_free(root);
	if (status < 0)
		gm_timeline_free(file);
	return status;
}
