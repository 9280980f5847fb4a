#include "traces/verify_scan.h"

#include <stdio.h>

#define WINDOW (1u << 20) /* bytes looked through at a time when a frame is sought */

void gm_problem_add(struct gm_problems *problems, uint64_t offset, struct gm_error *why)
{
	if (*problems->n < GM_MAX_PROBLEMS) {
		struct gm_trace_problem *p = &problems->list[*problems->n];
		p->offset = offset;
		snprintf(p->text, sizeof(p->text), "%.*s", (int)sizeof(p->text) - 1, why->text);
	}
	++*problems->n;
	memset(why, 0, sizeof(*why));
}

void gm_scan_begin(struct gm_scan *scan, struct gm_input *in, struct gm_problems *problems, uint64_t offset)
{
	memset(scan, 0, sizeof(*scan));
	scan->in = in;
	scan->problems = problems;
	scan->next = scan->last = offset;
}

void gm_scan_end(struct gm_scan *scan)
{
	gm_buffer_free(&scan->window);
}

/* Whether a whole frame begins at data and fits the `left` bytes of the file from there on. */
static bool frame_here(const uint8_t *data, uint64_t left, struct gm_frame *frame, struct gm_error *why)
{
	if (gm_frame_parse(data, frame, why) < 0)
		return false;
	if (frame->length <= left - GM_FRAME_BYTES)
		return true;
	gm_fail(why, GM_ERR_FORMAT, "frame %s of %llu bytes: only %llu follow; cut off", frame->name,
		(unsigned long long)frame->length, (unsigned long long)left - GM_FRAME_BYTES);
	return false;
}

static bool is_frame_name(const uint8_t *p)
{
	return memcmp(p, "BLCK", 4) == 0 || memcmp(p, "SEQN", 4) == 0 || memcmp(p, "INDX", 4) == 0 ||
	       memcmp(p, "GEND", 4) == 0;
}

/* The first whole frame of a known type from offset `from` on; found tells whether there is one. */
static int seek_frame(struct gm_scan *scan, uint64_t from, struct gm_frame *frame, uint64_t *offset, bool *found,
		      struct gm_error *err)
{
	uint64_t size = scan->in->size;

	*found = false;
	while (from + GM_FRAME_BYTES <= size) {
		uint64_t n = size - from < WINDOW ? size - from : WINDOW;
		scan->window.size = 0;
		GM_TRY(gm_input_fetch(scan->in, from, n, &scan->window, err));
		for (uint64_t i = 0; i + GM_FRAME_BYTES <= n; i++) {
			const uint8_t *p = scan->window.data + i;
			if (!is_frame_name(p) || !frame_here(p, size - from - i, frame, NULL))
				continue;
			*offset = from + i;
			*found = true;
			return GM_OK;
		}
		from += n - (GM_FRAME_BYTES - 1);
	}
	return GM_OK;
}

int gm_scan_next(struct gm_scan *scan, struct gm_frame *frame, uint64_t *offset, struct gm_error *err)
{
	uint64_t size = scan->in->size, left = size - scan->next;
	struct gm_error why = {0};
	bool found = false;

	if (left == 0)
		return 0;
	if (left >= GM_FRAME_BYTES) {
		scan->window.size = 0;
		GM_TRY(gm_input_fetch(scan->in, scan->next, GM_FRAME_BYTES, &scan->window, err));
		found = frame_here(scan->window.data, left, frame, &why);
	} else {
		gm_fail(&why, GM_ERR_FORMAT, "%llu bytes, too few for a frame: cut off", (unsigned long long)left);
	}
	*offset = scan->next;
	if (!found) {
		uint64_t wrong = scan->next;
		/* The frame before may have told a wrong length, or bytes may be missing: look from its own header on. */
		uint64_t from = scan->last < scan->next ? scan->last + GM_FRAME_BYTES : scan->next + 1;
		gm_problem_add(scan->problems, wrong, &why);
		GM_TRY(seek_frame(scan, from, frame, offset, &found, err));
		uint64_t end = found ? *offset : size;
		scan->lost_bytes += end > wrong ? end - wrong : 0;
		if (!found) {
			scan->next = size;
			return 0;
		}
	}
	scan->last = *offset;
	scan->next = *offset + GM_FRAME_BYTES + frame->length;
	return 1;
}

int gm_scan_block(struct gm_codec *codec, const struct gm_frame *frame, const struct gm_buffer *payload,
		  struct gm_directory *directory, struct gm_block *block, struct gm_error *err)
{
	GM_TRY(gm_frame_check(frame, payload->data, payload->size, err));
	GM_TRY(gm_directory_parse(&codec->geometry, payload->data, payload->size, frame->length, directory, err));
	GM_TRY(gm_directory_check_parts(payload->data, err));
	return gm_codec_decode(codec, directory, payload->data, GM_WANT_TAIL | GM_WANT_PREDICTION, block, err);
}
