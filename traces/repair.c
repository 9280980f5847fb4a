/* Saving the whole blocks of a damaged or cut-off trace. */
#include "traces/format_out.h"
#include "traces/verify_rows.h"
#include "traces/verify_scan.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

struct repairer {
	struct gm_repair_report *report;
	struct gm_problems problems;
	struct gm_input in;
	struct gm_header header;
	struct gm_buffer head_text;
	/* the input opened by its index, where that is good: it knows labels that frames may have lost */
	struct gm_trace *whole;
	struct gm_trace_out out;
	struct gm_codec *codec;
	struct gm_row_check rows;
	struct gm_buffer payload, frame;
	struct gm_block block;
	uint64_t next_index; /* blocks of the input below this number came already */
	uint32_t last_pass, last_sequence;
};

/* Names the sequences up to `end` in the new table; lost names come from the index, or are empty. */
static int name_sequences(struct repairer *r, uint32_t end, struct gm_error *err)
{
	while (r->out.index.n_sequence < end) {
		const struct gm_sequence *known = r->whole ? gm_trace_sequence(r->whole, r->out.index.n_sequence) : NULL;
		GM_TRY(gm_index_add_sequence(&r->out.index, known ? known->id : "", known ? known->label : "", 0, err));
	}
	return GM_OK;
}

/* No file of this size had so many sequences: their frames alone would not fit before this offset. */
static int check_sequence(const struct repairer *r, uint32_t sequence, uint64_t offset, struct gm_error *why)
{
	if (sequence < r->out.index.n_sequence || sequence < offset / (GM_FRAME_BYTES + GM_SEQN_BYTES))
		return GM_OK;
	return gm_fail(why, GM_ERR_FORMAT, "sequence %u: too large a number for its place in the file", sequence);
}

static int take_sequence(struct repairer *r, uint64_t offset, struct gm_error *why)
{
	struct gm_seqn seqn;

	GM_TRY(gm_seqn_parse(r->payload.data, r->payload.size, &seqn, why));
	int status = check_sequence(r, seqn.index, offset, why);
	if (status == GM_OK && seqn.index < r->out.index.n_sequence)
		status = gm_fail(why, GM_ERR_FORMAT, "sequence %u came already: frame SEQN: must come once", seqn.index);
	if (status == GM_OK)
		status = name_sequences(r, seqn.index, why);
	if (status == GM_OK)
		status = gm_index_add_sequence(&r->out.index, seqn.id, seqn.label, 0, why);
	gm_seqn_free(&seqn);
	return status;
}

/* Whether a whole block may follow what was saved so far. */
static int check_follows(const struct repairer *r, const struct gm_directory *d, uint64_t offset, struct gm_error *why)
{
	const struct gm_block *b = &r->block;

	if (d->index < r->next_index)
		return gm_fail(why, GM_ERR_FORMAT, "block %llu came already", (unsigned long long)d->index);
	if (r->report->n_block > 0 && (b->sequence[0] < r->last_sequence || b->pass[0] < r->last_pass ||
				       (b->pass[0] == r->last_pass && b->sequence[0] != r->last_sequence)))
		return gm_fail(why, GM_ERR_FORMAT,
			       "sequence %u, pass %u after sequence %u, pass %u: block %llu: must not fall", b->sequence[0],
			       b->pass[0], r->last_sequence, r->last_pass, (unsigned long long)d->index);
	return check_sequence(r, b->sequence[b->n_token - 1], offset, why);
}

/* Writes the block at hand under its new number; its columns are copied as they are. */
static int save_block(struct repairer *r, const struct gm_directory *d, struct gm_error *err)
{
	const struct gm_block *b = &r->block;
	uint32_t end = b->sequence[b->n_token - 1] + 1;
	uint8_t header[GM_FRAME_BYTES];

	GM_TRY(name_sequences(r, end, err));
	GM_TRY(gm_trace_out_sequences(&r->out, end, err));
	gm_put_u64(r->payload.data + 8, r->out.index.n_block);
	gm_put_u64(r->payload.data + 16, r->out.index.n_token);
	struct gm_index_block entry = {.first_token = r->out.index.n_token,
				       .n_token = d->n_token,
				       .n_row = d->n_row,
				       .hash = gm_hash(r->payload.data, d->bytes)};
	gm_frame_write(header, GM_FRAME_BLCK, r->payload.size, entry.hash);
	r->frame.size = 0;
	GM_TRY(gm_buffer_add(&r->frame, header, sizeof(header), err));
	GM_TRY(gm_buffer_add(&r->frame, r->payload.data, r->payload.size, err));
	GM_TRY(gm_trace_out_block(&r->out, r->frame.data, r->frame.size, &entry, err));
	for (uint32_t i = 0; i < b->n_token; i++)
		r->out.index.sequence[b->sequence[i]].n_token++;
	r->next_index = d->index + 1;
	r->last_pass = b->pass[b->n_token - 1];
	r->last_sequence = b->sequence[b->n_token - 1];
	r->report->n_block++;
	r->report->n_token += d->n_token;
	r->report->n_row += d->n_row;
	return GM_OK;
}

/* Rows that `traces verify` would refuse are no rows to save. */
static int check_rows(struct repairer *r, const struct gm_directory *d, struct gm_error *why)
{
	int status = gm_row_check_block(&r->rows, &r->block, why);

	if (status < 0)
		gm_error_at(why, "block %llu", (unsigned long long)d->index);
	return status;
}

/* A frame of the input. Problems of the input go to *why, failures to write to *err. */
static int take_frame(struct repairer *r, const struct gm_frame *frame, uint64_t offset, struct gm_error *why,
		      struct gm_error *err)
{
	struct gm_directory d;

	switch (frame->type) {
	case GM_FRAME_SEQN:
		GM_TRY(gm_frame_check(frame, r->payload.data, r->payload.size, why));
		return take_sequence(r, offset, why);
	case GM_FRAME_BLCK:
		GM_TRY(gm_scan_block(r->codec, frame, &r->payload, &d, &r->block, why));
		GM_TRY(check_follows(r, &d, offset, why));
		GM_TRY(check_rows(r, &d, why));
		return save_block(r, &d, err);
	default:
		return GM_OK; /* index and trailer are made anew; frames of other kinds are not copied */
	}
}

static int scan_all(struct repairer *r, struct gm_scan *scan, struct gm_error *err)
{
	for (;;) {
		struct gm_error why = {0};
		struct gm_frame frame;
		uint64_t offset;
		int status = gm_scan_next(scan, &frame, &offset, err);
		if (status <= 0)
			return status;
		r->payload.size = 0;
		GM_TRY(gm_input_fetch(&r->in, offset + GM_FRAME_BYTES, frame.length, &r->payload, err));
		status = take_frame(r, &frame, offset, &why, err);
		if (status == GM_ERR_MEMORY || (status < 0 && why.code == GM_OK))
			return gm_fail(err, status, "%s", why.text);
		if (status == GM_OK)
			continue;
		gm_problem_add(&r->problems, offset, &why);
		r->report->n_lost_block += frame.type == GM_FRAME_BLCK;
		r->report->lost_bytes += GM_FRAME_BYTES + frame.length;
	}
}

/* The header's own bytes go over unchanged: unknown keys and all. A damaged preamble before it does no harm. */
static int read_header(struct repairer *r, struct gm_error *err)
{
	struct gm_error why = {0};
	struct gm_frame frame;
	struct gm_buffer *text = &r->head_text;

	if (r->in.size < GM_PREAMBLE_BYTES + GM_FRAME_BYTES)
		return gm_fail(err, GM_ERR_FORMAT, "%llu bytes are too few for a header: nothing to save",
			       (unsigned long long)r->in.size);
	GM_TRY(gm_input_fetch(&r->in, 0, GM_PREAMBLE_BYTES + GM_FRAME_BYTES, text, err));
	int preamble = gm_preamble_check(text->data, GM_PREAMBLE_BYTES, &why);
	if (gm_frame_parse(text->data + GM_PREAMBLE_BYTES, &frame, preamble < 0 ? NULL : &why) < 0 ||
	    frame.type != GM_FRAME_HEAD)
		return gm_fail(err, GM_ERR_FORMAT, "no header: %s: nothing can be saved without it",
			       why.code ? why.text : "another frame stands in its place");
	text->size = 0;
	GM_TRY(gm_input_fetch(&r->in, GM_PREAMBLE_BYTES + GM_FRAME_BYTES, frame.length, text, err));
	GM_TRY(gm_frame_check(&frame, text->data, text->size, err));
	GM_TRY(gm_header_parse(&r->header, text->data, text->size, err));
	r->header.end = GM_PREAMBLE_BYTES + GM_FRAME_BYTES + frame.length;
	if (preamble < 0)
		gm_problem_add(&r->problems, 0, &why);
	return GM_OK;
}

static int repair(struct repairer *r, struct gm_error *err)
{
	struct gm_scan scan;
	uint64_t next = 0;

	r->codec = gm_codec_new(&r->header.geometry, err);
	if (!r->codec)
		return GM_ERR_MEMORY;
	GM_TRY(gm_row_check_init(&r->rows, &r->header, err));
	GM_TRY(gm_trace_out_head(&r->out, (const char *)r->head_text.data, r->head_text.size, err));
	gm_scan_begin(&scan, &r->in, &r->problems, r->header.end);
	int status = scan_all(r, &scan, err);
	r->report->lost_bytes += scan.lost_bytes;
	gm_scan_end(&scan);
	if (status < 0)
		return status;
	if (r->report->n_block == 0 && (!r->whole || r->report->n_lost_block > 0))
		return gm_fail(err, GM_ERR_FORMAT, "no whole block: %s: nothing to save", r->in.path);
	for (uint32_t i = 0; i < r->out.index.n_sequence; i++) {
		r->out.index.sequence[i].first_token = next;
		next += r->out.index.sequence[i].n_token;
	}
	r->report->n_sequence = r->out.index.n_sequence;
	return gm_trace_out_finish(&r->out, err);
}

/* Whether two names are of one file that is there. */
static bool same_file(const char *a, const char *b)
{
	struct stat x, y;

	return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The output must not be the input, nor the name that it has meanwhile: it would be cut to nothing before it is read. */
static int open_out(struct repairer *r, const char *path, struct gm_error *err)
{
	static const char suffix[] = ".repaired.part"; /* not ".part": repairing NAME.part to NAME is the usual case */
	char part[4096];

	if (strcmp(path, "-") == 0)
		return gm_fail(err, GM_ERR_USAGE, "a repaired trace goes to a file: must not be -");
	snprintf(part, sizeof(part), "%s%s", path, suffix);
	if (same_file(r->in.path, path) || same_file(r->in.path, part))
		return gm_fail(err, GM_ERR_USAGE,
			       "the repaired trace would overwrite the damaged one: %s: must be another file", path);
	return gm_trace_out_open(&r->out, path, suffix, false, err);
}

int gm_trace_repair(const char *path, const char *out, struct gm_repair_report *report, struct gm_error *err)
{
	struct repairer r = {.report = report};
	struct gm_error ignored = {0};

	memset(report, 0, sizeof(*report));
	r.out.fd = -1;
	r.problems = (struct gm_problems){.n = &report->n_problem, .list = report->problem};
	int status = gm_input_open(&r.in, path, err);
	if (status < 0)
		return status;
	if (!r.in.seekable) {
		status = gm_fail(err, GM_ERR_UNSUPPORTED, "cannot be repaired: %s: must be a file, not a pipe", r.in.path);
		goto out;
	}
	status = read_header(&r, err);
	if (status < 0) {
		gm_error_at(err, "%s", r.in.path);
		goto out;
	}
	GM_TRY_OUT(open_out(&r, out, err));
	r.whole = gm_trace_open(path, &ignored);
	report->had_index = r.whole != NULL;
	status = repair(&r, err);
out:
	gm_trace_close(r.whole);
	gm_trace_out_release(&r.out, false);
	gm_buffer_free(&r.payload);
	gm_buffer_free(&r.frame);
	gm_buffer_free(&r.head_text);
	gm_block_free(&r.block);
	gm_row_check_free(&r.rows);
	gm_codec_free(r.codec);
	gm_header_free(&r.header);
	gm_input_close(&r.in);
	return status;
}
