#include "traces/verify.h"

#include "base/hash.h"
#include "traces/verify_rows.h"
#include "traces/verify_scan.h"

#include <stdio.h>

struct verifier {
	struct gm_verify_report *report;
	struct gm_problems problems;
	struct gm_input in;
	struct gm_header header;
	struct gm_codec *codec;
	struct gm_row_check rows;
	struct gm_index came; /* what the frames say: compared with the index */
	struct gm_buffer payload;
	struct gm_block block;
	uint64_t index_offset; /* 0: no index yet */
	uint64_t index_hash;
	uint64_t end; /* of the trailer, 0: none yet */
	uint32_t last_pass, last_sequence;
	bool any_token;
	uint64_t n_good; /* blocks that are right in themselves: a repair saves them */
};

static int take_sequence(struct verifier *v, struct gm_error *err)
{
	struct gm_seqn seqn;

	GM_TRY(gm_seqn_parse(v->payload.data, v->payload.size, &seqn, err));
	int status = GM_OK;
	if (seqn.index != v->came.n_sequence)
		status = gm_fail(err, GM_ERR_FORMAT, "sequence %u: frame SEQN: must be %u", seqn.index, v->came.n_sequence);
	if (status == GM_OK)
		status = gm_index_add_sequence(&v->came, seqn.id, seqn.label, 0, err);
	gm_seqn_free(&seqn);
	return status;
}

/* Order of tokens, passes and sequences from block to block. */
static int check_continuity(struct verifier *v, const struct gm_directory *d, struct gm_error *err)
{
	const struct gm_block *b = &v->block;

	if (d->index != v->came.n_block || d->first_token != v->came.n_token)
		return gm_fail(err, GM_ERR_FORMAT, "block %llu from token %llu: must be block %llu from token %llu",
			       (unsigned long long)d->index, (unsigned long long)d->first_token,
			       (unsigned long long)v->came.n_block, (unsigned long long)v->came.n_token);
	if (v->any_token && (b->sequence[0] < v->last_sequence || b->pass[0] < v->last_pass ||
			     (b->pass[0] == v->last_pass && b->sequence[0] != v->last_sequence)))
		return gm_fail(err, GM_ERR_FORMAT,
			       "sequence %u, pass %u after sequence %u, pass %u: block %llu: must not fall, and a pass "
			       "lies in one sequence",
			       b->sequence[0], b->pass[0], v->last_sequence, v->last_pass, (unsigned long long)d->index);
	if (b->sequence[b->n_token - 1] >= v->came.n_sequence)
		return gm_fail(err, GM_ERR_FORMAT,
			       "sequence %u is not known: block %llu: a frame SEQN before it must name it",
			       b->sequence[b->n_token - 1], (unsigned long long)d->index);
	return GM_OK;
}

static int take_block(struct verifier *v, const struct gm_frame *frame, uint64_t offset, struct gm_error *err)
{
	struct gm_directory d;

	GM_TRY(gm_scan_block(v->codec, frame, &v->payload, &d, &v->block, err));
	struct gm_index_block entry = {.offset = offset,
				       .first_token = d.first_token,
				       .n_token = d.n_token,
				       .n_row = d.n_row,
				       .hash = frame->hash};
	int status = check_continuity(v, &d, err);
	for (uint32_t i = 0; i < d.n_token; i++)
		if (v->block.sequence[i] < v->came.n_sequence)
			v->came.sequence[v->block.sequence[i]].n_token++;
	v->last_pass = v->block.pass[d.n_token - 1];
	v->last_sequence = v->block.sequence[d.n_token - 1];
	v->any_token = true;
	GM_TRY(gm_index_add_block(&v->came, &entry, err));
	struct gm_error row = {0};
	int rows = gm_row_check_block(&v->rows, &v->block, &row);

	v->n_good += rows == GM_OK;
	if (status == GM_OK && rows < 0) {
		gm_error_at(&row, "block %llu", (unsigned long long)d.index);
		status = gm_fail(err, rows, "%s", row.text);
	}
	return status;
}

static int compare_sequences(const struct verifier *v, const struct gm_index *said, struct gm_error *err)
{
	for (uint32_t i = 0; i < said->n_sequence; i++) {
		const struct gm_index_sequence *a = &v->came.sequence[i], *b = &said->sequence[i];
		if (a->n_token != b->n_token || strcmp(a->id, b->id) != 0 || strcmp(a->label, b->label) != 0)
			return gm_fail(err, GM_ERR_FORMAT,
				       "sequence %u (%llu tokens) differs from the frames (%llu): index: damaged", i,
				       (unsigned long long)b->n_token, (unsigned long long)a->n_token);
	}
	return GM_OK;
}

static int compare_index(const struct verifier *v, const struct gm_index *said, struct gm_error *err)
{
	const struct gm_index *came = &v->came;

	if (said->n_block != came->n_block || said->n_sequence != came->n_sequence)
		return gm_fail(err, GM_ERR_FORMAT, "%llu blocks and %u sequences: index: the frames hold %llu and %u",
			       (unsigned long long)said->n_block, said->n_sequence, (unsigned long long)came->n_block,
			       came->n_sequence);
	for (uint64_t i = 0; i < came->n_block; i++)
		if (memcmp(&said->block[i], &came->block[i], sizeof(came->block[i])) != 0)
			return gm_fail(err, GM_ERR_FORMAT, "block %llu differs from the one at byte %llu: index: damaged",
				       (unsigned long long)i, (unsigned long long)came->block[i].offset);
	return compare_sequences(v, said, err);
}

static int take_index(struct verifier *v, const struct gm_frame *frame, uint64_t offset, struct gm_error *err)
{
	struct gm_index said;

	v->index_offset = offset;
	v->index_hash = frame->hash;
	int status = gm_index_parse(&said, v->payload.data, v->payload.size, offset, v->header.geometry.n_layer, err);
	v->report->has_index = status == GM_OK;
	if (status == GM_OK)
		status = compare_index(v, &said, err);
	gm_index_free(&said);
	return status;
}

static int take_trailer(struct verifier *v, uint64_t offset, struct gm_error *err)
{
	uint64_t index_offset = gm_get_u64(v->payload.data), size = gm_get_u64(v->payload.data + 8);

	v->end = offset + GM_TRAILER_BYTES;
	if (index_offset != v->index_offset || v->index_offset == 0)
		return gm_fail(err, GM_ERR_FORMAT, "the index is said to lie at byte %llu: trailer: it lies at %llu",
			       (unsigned long long)index_offset, (unsigned long long)v->index_offset);
	if (size != v->end || v->end != v->in.size)
		return gm_fail(err, GM_ERR_FORMAT, "a file of %llu bytes: trailer: it has %llu", (unsigned long long)size,
			       (unsigned long long)v->in.size);
	return GM_OK;
}

static int take_frame(struct verifier *v, const struct gm_frame *frame, uint64_t offset, struct gm_error *why)
{
	if (v->index_offset && frame->type != GM_FRAME_GEND && frame->type != GM_FRAME_UNKNOWN)
		return gm_fail(why, GM_ERR_FORMAT, "frame %s after the index: out of place", frame->name);
	if (frame->type == GM_FRAME_BLCK)
		return take_block(v, frame, offset, why);
	GM_TRY(gm_frame_check(frame, v->payload.data, v->payload.size, why));
	switch (frame->type) {
	case GM_FRAME_SEQN:
		return take_sequence(v, why);
	case GM_FRAME_INDX:
		return take_index(v, frame, offset, why);
	case GM_FRAME_GEND:
		if (frame->length != GM_TRAILER_PAYLOAD)
			return gm_fail(why, GM_ERR_FORMAT, "frame GEND of %llu bytes: must be %u",
				       (unsigned long long)frame->length, GM_TRAILER_PAYLOAD);
		return take_trailer(v, offset, why);
	case GM_FRAME_UNKNOWN:
		return GM_OK;
	default:
		return gm_fail(why, GM_ERR_FORMAT, "frame %s: out of place", frame->name);
	}
}

static int scan_all(struct verifier *v, struct gm_scan *scan, struct gm_error *err)
{
	for (;;) {
		struct gm_error why = {0};
		struct gm_frame frame;
		uint64_t offset;
		int status = gm_scan_next(scan, &frame, &offset, err);
		if (status <= 0)
			return status;
		v->payload.size = 0;
		GM_TRY(gm_input_fetch(&v->in, offset + GM_FRAME_BYTES, frame.length, &v->payload, err));
		status = take_frame(v, &frame, offset, &why);
		if (status == GM_ERR_MEMORY)
			return gm_fail(err, status, "%s", why.text);
		if (status < 0)
			gm_problem_add(&v->problems, offset, &why);
	}
}

static int verify(struct verifier *v, struct gm_error *err)
{
	struct gm_error why = {0};
	struct gm_scan scan;

	v->codec = gm_codec_new(&v->header.geometry, err);
	if (!v->codec)
		return GM_ERR_MEMORY;
	GM_TRY(gm_row_check_init(&v->rows, &v->header, err));
	gm_scan_begin(&scan, &v->in, &v->problems, v->header.end);
	int status = scan_all(v, &scan, err);
	gm_scan_end(&scan);
	if (status < 0)
		return status;
	v->report->can_save = v->n_good > 0;
	if (v->end == 0) {
		gm_fail(&why, GM_ERR_FORMAT, "no %s at the end: the trace was cut off%s",
			v->index_offset ? "trailer" : "index",
			v->n_good > 0 ? "; `traces verify --repair OUT` saves its whole blocks"
				      : " before its first whole block");
		gm_problem_add(&v->problems, v->in.size, &why);
	}
	return GM_OK;
}

static void fill_report(struct verifier *v)
{
	struct gm_verify_report *r = v->report;

	r->bytes = v->in.size;
	r->n_block = v->came.n_block;
	r->n_token = v->came.n_token;
	r->n_row = v->came.n_row;
	r->n_sequence = v->came.n_sequence;
	if (r->has_index)
		gm_hash_format(gm_trace_hash_of(v->header.hash, v->index_hash), r->hash);
}

/* Where only the bytes before the header are damaged, a repair does without them. */
static bool header_stands(struct verifier *v)
{
	struct gm_frame frame;
	struct gm_error why = {0};

	v->payload.size = 0;
	if (gm_input_fetch(&v->in, GM_PREAMBLE_BYTES, GM_FRAME_BYTES, &v->payload, &why) < 0 ||
	    gm_frame_parse(v->payload.data, &frame, &why) < 0 || frame.type != GM_FRAME_HEAD)
		return false;
	v->payload.size = 0;
	return gm_input_fetch(&v->in, GM_PREAMBLE_BYTES + GM_FRAME_BYTES, frame.length, &v->payload, &why) == GM_OK &&
	       gm_frame_check(&frame, v->payload.data, v->payload.size, &why) == GM_OK &&
	       gm_header_parse(&v->header, v->payload.data, v->payload.size, &why) == GM_OK;
}

int gm_trace_problem_fail(const struct gm_trace_problem *problem, const char *path, struct gm_error *err)
{
	struct gm_error one = {0};

	gm_fail(&one, GM_ERR_FORMAT, "%s", problem->text);
	gm_error_at(&one, "%s: byte %llu", path, (unsigned long long)problem->offset);
	return gm_fail(err, one.code, "%s", one.text);
}

int gm_trace_verify(const char *path, struct gm_verify_report *report, struct gm_error *err)
{
	struct verifier v = {.report = report};
	struct gm_error why = {0};

	memset(report, 0, sizeof(*report));
	v.problems = (struct gm_problems){.n = &report->n_problem, .list = report->problem};
	int status = gm_input_open(&v.in, path, err);
	if (status < 0)
		return status;
	if (!v.in.seekable) {
		status = gm_fail(err, GM_ERR_UNSUPPORTED, "cannot be verified: %s: must be a file, not a pipe", v.in.path);
		goto out;
	}
	status = gm_header_read(&v.in, &v.header, &why);
	if (status == GM_ERR_FORMAT) {
		gm_problem_add(&v.problems, 0, &why);
		report->can_save = header_stands(&v);
	} else if (status < 0) {
		gm_error_at(&why, "%s", v.in.path);
		gm_fail(err, status, "%s", why.text);
		goto out;
	} else {
		status = verify(&v, err);
		if (status < 0) {
			gm_error_at(err, "%s", v.in.path);
			goto out;
		}
	}
	fill_report(&v);
	if (report->n_problem)
		status = gm_trace_problem_fail(&report->problem[0], v.in.path, err);
out:
	gm_row_check_free(&v.rows);
	gm_index_free(&v.came);
	gm_buffer_free(&v.payload);
	gm_block_free(&v.block);
	gm_codec_free(v.codec);
	gm_header_free(&v.header);
	gm_input_close(&v.in);
	return status;
}
