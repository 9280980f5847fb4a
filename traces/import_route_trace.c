/* Importer for BigMoeOnEdge's `# route_trace v1` CSV (https://github.com/Helldez/BigMoeOnEdge, Apache-2.0): one line a selected
 * expert: turn,phase,step,layer,slot,expert,weight,residency,expert_bytes.
 *
 * A turn becomes a sequence; its phase 0 is the prompt, one forward pass, its phase 1 are decode steps. Bytes stand in comment
 * lines, one a layer; the column holds them only where the device read the expert (0 elsewhere), so it only fills gaps.
 * `residency` is the history of the device that recorded and says nothing about routing. Rows that the device did not
 * compute (the last layer of a prompt but for its last token) are absent. */
#include "base/number.h"
#include "base/options.h"
#include "traces/commands.h"
#include "traces/import_picks.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "# route_trace v1"

enum { TURN, PHASE, STEP, LAYER, SLOT, EXPERT, WEIGHT, EXPERT_BYTES, N_COLUMN };

static const struct gm_picks_column columns[N_COLUMN + 1] = {
	{"turn", true, 0},   {"phase", true, 0},   {"step", true, 0},          {"layer", true, 0}, {"slot", true, 0},
	{"expert", true, 0}, {"weight", false, 0}, {"expert_bytes", false, 0}, {NULL, false, 0},
};

static const char *const own_keys[] = {NULL};

/* Where a turn's decode steps go: behind its prompt, whether they count on from it or from 0. */
struct turn {
	uint32_t number;
	int64_t last_prompt; /* largest step of phase 0, -1 before there is one */
	bool decoding;
	uint64_t shift; /* added to the steps of phase 1 */
};

struct route {
	struct gm_picks picks;
	struct gm_json *facts;
	uint64_t expert_bytes[GM_MAX_LAYER], dense_bytes[GM_MAX_LAYER]; /* 0: not said */
	int64_t comment_layer;                                          /* of the comment line being read, -1: none */
	uint32_t n_comment_layer;
	struct turn *turn;
	size_t n_turn, max_turn;
};

/* --- header --- */

static int bad_pair(const char *key, const char *value, const char *where, const char *right, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_FORMAT, "%.40s is \"%.40s\": %s: %s", key, value, where, right);
}

static int take_pair(void *context, bool first, const char *key, const char *value, const char *where, struct gm_error *err)
{
	struct route *r = context;
	double number = 0.0;
	uint64_t whole = 0;

	if (first)
		r->comment_layer = -1;
	if (first && strcmp(key, "layer") == 0) {
		if (gm_parse_u64(value, "", 0, GM_MAX_LAYER - 1, &whole, NULL) < 0)
			return bad_pair(key, value, where, "a whole number from 0 to 4095", err);
		r->comment_layer = (int64_t)whole;
		if (whole >= r->n_comment_layer)
			r->n_comment_layer = (uint32_t)whole + 1;
		return GM_OK;
	}
	bool expert = strcmp(key, "expert_bytes") == 0, dense = strcmp(key, "dense_bytes") == 0;

	if (r->comment_layer >= 0 && (expert || dense)) {
		if (gm_parse_u64(value, "", 0, GM_MAX_PART_BYTES, &whole, NULL) < 0)
			return bad_pair(key, value, where, "a whole number of bytes", err);
		(expert ? r->expert_bytes : r->dense_bytes)[r->comment_layer] = whole;
		return GM_OK;
	}
	if (r->comment_layer >= 0)
		return GM_OK; /* other facts of a layer */
	if (!gm_is_utf8(key) || !gm_is_utf8(value))
		return gm_fail(err, GM_ERR_FORMAT, "text that is not UTF-8: %s: save the file as UTF-8", where);
	if (gm_json_get(r->facts, key))
		return bad_pair(key, value, where, "it stands there already: each key once", err);
	bool text = strcmp(key, "model") == 0 || gm_parse_double(value, "", &number, NULL) < 0;

	if (!(text ? gm_json_add_string(r->facts, key, value) : gm_json_add_number(r->facts, key, number)))
		return gm_fail(err, GM_ERR_MEMORY, "out of memory");
	return GM_OK;
}

static int read_model(struct route *r, struct gm_error *err)
{
	struct gm_picks *p = &r->picks;
	char where[200];

	GM_TRY(gm_picks_header(p, MAGIC, take_pair, r, err));
	if (!gm_json_get(r->facts, "gating"))
		gm_json_add_string(r->facts, "gating", "softmax"); /* the selection is done: of no more use */
	snprintf(where, sizeof(where), "%s: the comment lines", gm_feed_name(p->input));
	GM_TRY(gm_import_model(r->facts, p->options, where, &p->model, err));
	if (r->n_comment_layer > p->model.n_layer)
		return gm_fail(err, GM_ERR_FORMAT, "layer %u: %s: n_layer is %u", r->n_comment_layer - 1, where,
			       p->model.n_layer);
	return GM_OK;
}

/* Bytes for every layer or for none: a gap filled with a guess would be a silent error in every size and time. */
static int set_bytes(struct route *r, const char *what, const char *option, const uint64_t *said, uint64_t **out,
		     struct gm_error *err)
{
	struct gm_picks *p = &r->picks;
	uint32_t n_layer = p->model.n_layer, missing = 0;

	if (*out)
		return GM_OK; /* given by an option */
	for (uint32_t layer = 0; layer < n_layer; layer++)
		missing += said[layer] == 0;
	if (missing > 0) {
		if (!p->options->quiet)
			gm_note("note: %s not known for %u of %u layers: %s: give %s", what, missing, n_layer,
				gm_feed_name(p->input), option);
		return GM_OK;
	}
	*out = gm_alloc(n_layer, sizeof(**out), err);
	if (!*out)
		return GM_ERR_MEMORY;
	memcpy(*out, said, n_layer * sizeof(**out));
	return GM_OK;
}

/* --- rows --- */

static struct turn *find_turn(struct route *r, uint32_t number, struct gm_error *err)
{
	for (size_t i = r->n_turn; i-- > 0;)
		if (r->turn[i].number == number)
			return &r->turn[i];
	if (r->n_turn == r->max_turn) {
		size_t max = r->max_turn ? r->max_turn * 2 : 16;
		struct turn *grown = gm_realloc(r->turn, max, sizeof(*grown), err);

		if (!grown)
			return NULL;
		r->turn = grown;
		r->max_turn = max;
	}
	r->turn[r->n_turn] = (struct turn){.number = number, .last_prompt = -1};
	return &r->turn[r->n_turn++];
}

static int place_token(struct route *r, uint32_t number, bool decode, uint64_t step, struct gm_store_row *row,
		       struct gm_error *err)
{
	struct turn *turn = find_turn(r, number, err);

	if (!turn)
		return GM_ERR_MEMORY;
	if (!decode && turn->decoding)
		return gm_picks_bad(&r->picks, "a prompt behind decode steps",
				    "one prompt (phase 0) a turn, before its phase 1", err);
	if (!decode && (int64_t)step > turn->last_prompt)
		turn->last_prompt = (int64_t)step;
	if (decode && !turn->decoding) {
		turn->decoding = true;
		if ((int64_t)step <= turn->last_prompt)
			turn->shift = (uint64_t)(turn->last_prompt + 1) - step;
	}
	if (decode)
		step += turn->shift;
	if (step > UINT32_MAX)
		return gm_picks_bad(&r->picks, "too many steps in a turn", "at most 2^32", err);
	row->sequence = number;
	row->position = (uint32_t)step;
	row->pass = decode ? (int64_t)step + 1 : 0;
	return GM_OK;
}

static int read_line(struct route *r, struct gm_error *err)
{
	struct gm_picks *p = &r->picks;
	struct gm_store_row row = {.line = p->csv.line, .logprob = NAN, .token = GM_NO_TOKEN};
	uint64_t turn = 0, phase = 0, step = 0, layer = 0, slot = 0, expert = 0, bytes = 0;
	double weight = 0.0;

	GM_TRY(gm_picks_uint(p, TURN, UINT32_MAX, &turn, err));
	GM_TRY(gm_picks_uint(p, PHASE, 1, &phase, err));
	GM_TRY(gm_picks_uint(p, STEP, UINT32_MAX, &step, err));
	GM_TRY(gm_picks_uint(p, LAYER, p->model.n_layer - 1, &layer, err));
	GM_TRY(gm_picks_uint(p, SLOT, p->model.top_k - 1, &slot, err));
	GM_TRY(gm_picks_uint(p, EXPERT, p->model.n_expert - 1, &expert, err));
	GM_TRY(gm_picks_number(p, WEIGHT, &weight, err));
	GM_TRY(gm_picks_uint(p, EXPERT_BYTES, GM_MAX_PART_BYTES, &bytes, err));
	if (r->expert_bytes[layer] == 0)
		r->expert_bytes[layer] = bytes;
	row.layer = (uint32_t)layer;
	GM_TRY(place_token(r, (uint32_t)turn, phase == 1, step, &row, err));
	return gm_picks_add(p, &row, (uint32_t)slot, (uint32_t)expert, weight, err);
}

int gm_import_route_trace(struct gm_feed *input, const struct gm_import_options *options, struct gm_error *err)
{
	struct route *r = gm_alloc(1, sizeof(*r), err);
	struct gm_writer *writer = NULL;
	int status, got;

	if (!r)
		return GM_ERR_MEMORY;
	r->picks.input = input;
	r->picks.options = options;
	memcpy(r->picks.column, columns, sizeof(columns));
	r->facts = gm_json_new_object();
	GM_TRY_OUT(r->facts ? GM_OK : gm_fail(err, GM_ERR_MEMORY, "out of memory"));
	GM_TRY_OUT(read_model(r, err));
	GM_TRY_OUT(gm_picks_begin(&r->picks, err));
	while ((got = gm_picks_next(&r->picks, err)) > 0)
		GM_TRY_OUT(read_line(r, err));
	GM_TRY_OUT(got);
	GM_TRY_OUT(gm_picks_end(&r->picks, err));
	GM_TRY_OUT(set_bytes(r, "expert_bytes", "--expert-bytes", r->expert_bytes, &r->picks.model.expert_bytes, err));
	GM_TRY_OUT(set_bytes(r, "dense_bytes", "--dense-bytes", r->dense_bytes, &r->picks.model.dense_bytes, err));
	writer = gm_import_open(r->facts, own_keys, options, GM_KIND_TOPK, false, &r->picks.model, err);
	GM_TRY_OUT(writer ? GM_OK : gm_failed(err));
	GM_TRY_OUT(gm_store_write(r->picks.store, writer, NULL, 0, options, err));
	status = gm_writer_close(writer, err);
	writer = NULL;
out:
	gm_progress_end(&r->picks.progress);
	gm_writer_discard(writer);
	gm_picks_free(&r->picks);
	gm_json_free(r->facts);
	free(r->turn);
	free(r);
	return status;
}
