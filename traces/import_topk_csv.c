/* Importer for topk-csv: `# topk_trace v1 key=value…`, column names, then one line a selected expert. Columns in any order;
 * `weight`, `label`, `pass`, `token` may be absent. */
#include "base/number.h"
#include "traces/commands.h"
#include "traces/import_picks.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "# topk_trace v1"

enum { SEQ, LABEL, POS, LAYER, RANK, EXPERT, WEIGHT, PASS, TOKEN, N_COLUMN };

static const struct gm_picks_column columns[N_COLUMN + 1] = {
	{"seq", true, 0},    {"label", false, 0},  {"pos", true, 0},   {"layer", true, 0},  {"rank", true, 0},
	{"expert", true, 0}, {"weight", false, 0}, {"pass", false, 0}, {"token", false, 0}, {NULL, false, 0},
};

static const char *const own_keys[] = {"weights", NULL};

/* A list for the key, from "1,2,3". */
static int add_list(struct gm_json *facts, const char *key, const char *text, const char *where, struct gm_error *err)
{
	struct gm_json *list = gm_json_new_array();
	char item[32];

	for (const char *at = text;; at++) {
		size_t n = strcspn(at, ",");
		double value = 0.0;

		snprintf(item, sizeof(item), "%.*s", (int)(n < sizeof(item) ? n : sizeof(item) - 1), at);
		if (gm_parse_double(item, "", &value, NULL) < 0) {
			gm_json_free(list);
			return gm_fail(err, GM_ERR_FORMAT, "%s is \"%.40s\": %s: a number, or a comma list of one a layer",
				       key, text, where);
		}
		gm_json_append_number(list, value);
		at += n;
		if (!*at)
			break;
	}
	return gm_json_add(facts, key, list) ? GM_OK : gm_fail(err, GM_ERR_MEMORY, "out of memory");
}

/* Numbers become numbers, all else stays text. */
static int take_pair(void *context, bool first, const char *key, const char *value, const char *where, struct gm_error *err)
{
	static const char *const texts[] = {"model", "source", "gating"};
	struct gm_json *facts = context;
	double number = 0.0;
	bool text = gm_parse_double(value, "", &number, NULL) < 0;

	(void)first;
	if (!gm_is_utf8(key) || !gm_is_utf8(value))
		return gm_fail(err, GM_ERR_FORMAT, "text that is not UTF-8: %s: save the file as UTF-8", where);
	if (gm_json_get(facts, key))
		return gm_fail(err, GM_ERR_FORMAT, "%.40s stands twice: %s: each key once", key, where);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		text = text || strcmp(key, texts[i]) == 0;
	if (strchr(value, ',') && (strcmp(key, "expert_bytes") == 0 || strcmp(key, "dense_bytes") == 0))
		return add_list(facts, key, value, where, err);
	if (!(text ? gm_json_add_string(facts, key, value) : gm_json_add_number(facts, key, number)))
		return gm_fail(err, GM_ERR_MEMORY, "out of memory");
	return GM_OK;
}

static int read_line(struct gm_picks *p, struct gm_error *err)
{
	struct gm_store_row row = {.line = p->csv.line, .logprob = NAN};
	uint64_t seq = 0, pos = 0, layer = 0, rank = 0, expert = 0, pass = UINT64_MAX, token = UINT64_MAX;
	const char *label = gm_picks_text(p, LABEL), *token_text = gm_picks_text(p, TOKEN);
	double weight = 0.0;

	GM_TRY(gm_picks_uint(p, SEQ, UINT32_MAX, &seq, err));
	GM_TRY(gm_picks_uint(p, POS, UINT32_MAX, &pos, err));
	GM_TRY(gm_picks_uint(p, LAYER, p->model.n_layer - 1, &layer, err));
	GM_TRY(gm_picks_uint(p, RANK, p->model.top_k - 1, &rank, err));
	GM_TRY(gm_picks_uint(p, EXPERT, p->model.n_expert - 1, &expert, err));
	GM_TRY(gm_picks_number(p, WEIGHT, &weight, err));
	GM_TRY(gm_picks_uint(p, PASS, UINT64_C(1) << 53, &pass, err));
	if (token_text && *token_text)
		GM_TRY(gm_picks_uint(p, TOKEN, INT32_MAX, &token, err));
	row.sequence = (uint32_t)seq;
	row.position = (uint32_t)pos;
	row.layer = (uint32_t)layer;
	row.pass = pass == UINT64_MAX ? GM_NO_PASS : (int64_t)pass;
	row.token = token == UINT64_MAX ? GM_NO_TOKEN : (int32_t)token;
	/* A label on the first line of a row holds for all of it; what stands on the others may not contradict it. */
	if (label && (rank == 0 || *label))
		GM_TRY(gm_store_label(p->store, row.sequence, label, p->csv.line, err));
	return gm_picks_add(p, &row, (uint32_t)rank, (uint32_t)expert, weight, err);
}

int gm_import_topk_csv(struct gm_feed *input, const struct gm_import_options *options, struct gm_error *err)
{
	struct gm_picks p = {.input = input, .options = options};
	struct gm_json *facts = gm_json_new_object();
	struct gm_writer *writer = NULL;
	char where[200];
	int status, got;

	memcpy(p.column, columns, sizeof(columns));
	GM_TRY_OUT(facts ? GM_OK : gm_fail(err, GM_ERR_MEMORY, "out of memory"));
	GM_TRY_OUT(gm_picks_header(&p, MAGIC, take_pair, facts, err));
	/* The selection is done: how the gate scored is of no more use. */
	if (!gm_json_get(facts, "gating"))
		gm_json_add_string(facts, "gating", "softmax");
	snprintf(where, sizeof(where), "%s: line 1", gm_feed_name(input));
	GM_TRY_OUT(gm_import_model(facts, options, where, &p.model, err));
	GM_TRY_OUT(gm_picks_begin(&p, err));
	while ((got = gm_picks_next(&p, err)) > 0)
		GM_TRY_OUT(read_line(&p, err));
	GM_TRY_OUT(got);
	GM_TRY_OUT(gm_picks_end(&p, err));
	writer = gm_import_open(facts, own_keys, options, GM_KIND_TOPK, false, &p.model, err);
	GM_TRY_OUT(writer ? GM_OK : gm_failed(err));
	GM_TRY_OUT(gm_store_write(p.store, writer, NULL, 0, options, err));
	status = gm_writer_close(writer, err);
	writer = NULL;
out:
	gm_progress_end(&p.progress);
	gm_writer_discard(writer);
	gm_picks_free(&p);
	gm_json_free(facts);
	return status;
}
