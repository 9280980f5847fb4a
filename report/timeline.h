/* A token's time as a picture: lanes for GPU, link, CPU and disk, from the Chrome trace events of `sim run --trace-events`. */
#ifndef GM_REPORT_TIMELINE_H
#define GM_REPORT_TIMELINE_H

#include "base/error.h"

#include <stdint.h>
#include <stdio.h>

enum gm_span_kind {
	GM_SPAN_DENSE,
	GM_SPAN_EXPERT, /* an expert that was there */
	GM_SPAN_WAITED, /* an expert that was fetched in this layer */
	GM_SPAN_TOKEN,
	GM_SPAN_FETCH,
	GM_SPAN_BACKGROUND,
	GM_SPAN_CPU,
	GM_SPAN_READ,
	GM_N_SPAN_KIND
};
enum { GM_PICTURE_GPU, GM_PICTURE_LINK, GM_PICTURE_CPU, GM_PICTURE_DISK, GM_N_PICTURE_LANE };

struct gm_timeline_span {
	double start, end; /* µs */
	int lane;
	enum gm_span_kind kind;
	int64_t layer, expert; /* -1: none */
};

struct gm_timeline_file {
	char *title;
	struct gm_timeline_span *span; /* [n] by start */
	size_t n;
	double *token; /* [n_token + 1] when each token starts, and when the last ends */
	size_t n_token;
};

/* Reads a file ("-": standard input). Errors name the line or the event. */
int gm_timeline_read(struct gm_timeline_file *file, const char *path, struct gm_error *err);
void gm_timeline_free(struct gm_timeline_file *file);

/* Draws one of the tokens, from 0; title NULL: the file's. */
int gm_timeline_draw(const struct gm_timeline_file *file, size_t token, const char *title, FILE *out, struct gm_error *err);

#endif
