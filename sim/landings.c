#include "sim/landings.h"

#include "base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "gatemass-arrivals"
#define VERSION "1"

static const char *const columns[] = {"token", "layer", "expert_layer", "expert"};
enum { N_COLUMN = sizeof(columns) / sizeof(*columns) };

/* --- writing --- */

int gm_landings_open(struct gm_landings_writer *writer, const char *path, const char *policy_hash, const char *policy,
		     struct gm_error *err)
{
	*writer = (struct gm_landings_writer){0};
	GM_TRY(gm_output_open(&writer->output, path, err));
	writer->csv.stream = writer->output.stream;
	gm_csv_text(&writer->csv, MAGIC);
	gm_csv_text(&writer->csv, VERSION);
	gm_csv_end_row(&writer->csv);
	gm_csv_text(&writer->csv, "policy");
	gm_csv_text(&writer->csv, policy_hash);
	gm_csv_text(&writer->csv, policy);
	gm_csv_end_row(&writer->csv);
	for (int i = 0; i < N_COLUMN; i++)
		gm_csv_text(&writer->csv, columns[i]);
	gm_csv_end_row(&writer->csv);
	return GM_OK;
}

static bool is_before(const struct gm_landing *a, const struct gm_landing *b)
{
	return a->token != b->token ? a->token < b->token : a->layer < b->layer;
}

int gm_landings_put(struct gm_landings_writer *writer, const struct gm_landing *landing, struct gm_error *err)
{
	size_t i = writer->n_waiting;

	if (i == writer->max_waiting) {
		size_t more = i ? 2 * i : 64;

		GM_GROW(writer->waiting, more, err);
		writer->max_waiting = more;
	}
	/* hardly any is out of order, and few wait: those of a pass */
	for (; i > 0 && is_before(landing, &writer->waiting[i - 1]); i--)
		writer->waiting[i] = writer->waiting[i - 1];
	writer->waiting[i] = *landing;
	writer->n_waiting++;
	return GM_OK;
}

static void write_landing(struct gm_landings_writer *writer, const struct gm_landing *landing)
{
	gm_csv_uint(&writer->csv, landing->token);
	gm_csv_uint(&writer->csv, landing->layer);
	gm_csv_uint(&writer->csv, landing->expert_layer);
	gm_csv_uint(&writer->csv, landing->expert);
	gm_csv_end_row(&writer->csv);
	writer->n_written++;
}

void gm_landings_pass(struct gm_landings_writer *writer, uint64_t token)
{
	size_t n = 0;

	for (; n < writer->n_waiting && writer->waiting[n].token < token; n++)
		write_landing(writer, &writer->waiting[n]);
	writer->n_waiting -= n;
	if (n)
		memmove(writer->waiting, writer->waiting + n, writer->n_waiting * sizeof(*writer->waiting));
}

void gm_landings_forget(struct gm_landings_writer *writer)
{
	writer->n_waiting = 0;
}

int gm_landings_commit(struct gm_landings_writer *writer, const char *trace_hash, struct gm_error *err)
{
	gm_csv_text(&writer->csv, "end");
	gm_csv_uint(&writer->csv, writer->n_written);
	gm_csv_text(&writer->csv, trace_hash);
	gm_csv_end_row(&writer->csv);
	return gm_output_commit(&writer->output, err);
}

void gm_landings_discard(struct gm_landings_writer *writer)
{
	gm_output_discard(&writer->output);
	free(writer->waiting);
	*writer = (struct gm_landings_writer){0};
}

/* --- reading --- */

struct reading {
	struct gm_landings *to;
	struct gm_csv_reader csv;
	size_t max;
};

static int fail_line(const struct reading *r, struct gm_error *err, const char *wrong, const char *right)
{
	return gm_fail(err, GM_ERR_FORMAT, "%s: %s, line %" PRIu64 ": %s", wrong, r->csv.name, r->csv.line, right);
}

/* The next row; one must come. */
static int next_row(struct reading *r, struct gm_error *err)
{
	int status = gm_csv_next(&r->csv, err);

	if (status < 0)
		return status;
	if (status == 0)
		return gm_fail(
			err, GM_ERR_FORMAT,
			"cut off: %s: its last line must be \"end\"; a run that did not end leaves none, record again",
			r->csv.name);
	return GM_OK;
}

static bool is_hash(const char *text)
{
	return strlen(text) == GM_HASH_TEXT - 1 && strspn(text, "0123456789abcdef") == GM_HASH_TEXT - 1;
}

static int read_head(struct reading *r, struct gm_error *err)
{
	const struct gm_csv_reader *csv = &r->csv;
	int status = gm_csv_next(&r->csv, err);

	if (status < 0)
		return status;
	if (status == 0 || csv->n_field != 2 || strcmp(csv->field[0], MAGIC) != 0)
		return gm_fail(err, GM_ERR_FORMAT,
			       "no arrivals of a run: %s: the first line must be \"" MAGIC "," VERSION
			       "\"; engine run --arrivals writes such a file",
			       csv->name);
	if (strcmp(csv->field[1], VERSION) != 0)
		return gm_fail(err, GM_ERR_FORMAT, "arrivals of version %.20s: %s: this program reads version " VERSION,
			       csv->field[1], csv->name);
	GM_TRY(next_row(r, err));
	if (csv->n_field != 3 || strcmp(csv->field[0], "policy") != 0 || !is_hash(csv->field[1]))
		return fail_line(r, err, "no policy", "must be \"policy\", 16 hex digits and the run's settings");
	snprintf(r->to->policy_hash, sizeof(r->to->policy_hash), "%s", csv->field[1]);
	if (!(r->to->policy = gm_strdup(csv->field[2], err)))
		return GM_ERR_MEMORY;
	GM_TRY(next_row(r, err));
	for (size_t i = 0; i < N_COLUMN; i++)
		if (csv->n_field != N_COLUMN || strcmp(csv->field[i], columns[i]) != 0)
			return fail_line(r, err, "other columns", "must be token,layer,expert_layer,expert");
	return GM_OK;
}

static int take_landing(struct reading *r, struct gm_error *err)
{
	struct gm_landings *to = r->to;
	char *const *field = r->csv.field;
	struct gm_landing *landing;

	if (r->csv.n_field != N_COLUMN)
		return fail_line(r, err, "no landing", "must be token,layer,expert_layer,expert, or \"end\"");
	if (to->n == r->max) {
		size_t more = r->max ? 2 * r->max : 1024;

		GM_GROW(to->landing, more, err);
		r->max = more;
	}
	landing = &to->landing[to->n];
	if (gm_parse_u64(field[0], "", 0, UINT64_MAX, &landing->token, NULL) < 0 ||
	    gm_parse_u32(field[1], "", 0, UINT32_MAX, &landing->layer, NULL) < 0 ||
	    gm_parse_u32(field[2], "", 0, UINT32_MAX, &landing->expert_layer, NULL) < 0 ||
	    gm_parse_u32(field[3], "", 0, UINT32_MAX, &landing->expert, NULL) < 0)
		return fail_line(r, err, "not a whole number", "token, layers and expert count from 0");
	if (to->n && is_before(landing, landing - 1))
		return fail_line(r, err, "out of order", "must be by token, then by layer");
	to->n++;
	return GM_OK;
}

static int take_end(struct reading *r, struct gm_error *err)
{
	const struct gm_csv_reader *csv = &r->csv;
	uint64_t n;
	int status;

	if (csv->n_field != 3 || gm_parse_u64(csv->field[1], "", 0, UINT64_MAX, &n, NULL) < 0 || !is_hash(csv->field[2]))
		return fail_line(r, err, "no end", "must be \"end\", how many landings, and the trace's hash");
	if (n != r->to->n)
		return gm_fail(err, GM_ERR_FORMAT, "lines are missing: %s: there must be %" PRIu64 " landings, not %zu",
			       csv->name, n, r->to->n);
	snprintf(r->to->trace_hash, sizeof(r->to->trace_hash), "%s", csv->field[2]);
	status = gm_csv_next(&r->csv, err);
	return status > 0 ? fail_line(r, err, "a line after the end", "must be the last") : status;
}

static int read_all(struct reading *r, struct gm_error *err)
{
	GM_TRY(read_head(r, err));
	for (;;) {
		GM_TRY(next_row(r, err));
		if (strcmp(r->csv.field[0], "end") == 0)
			return take_end(r, err);
		GM_TRY(take_landing(r, err));
	}
}

int gm_landings_read(struct gm_landings *landings, const char *path, struct gm_error *err)
{
	struct reading reading = {.to = landings};
	bool standard = strcmp(path, "-") == 0;
	FILE *stream;
	int status;

	*landings = (struct gm_landings){0};
	if (!(landings->path = gm_strdup(path, err)))
		return GM_ERR_MEMORY;
	stream = standard ? stdin : fopen(path, "rbe");
	if (!stream)
		return gm_fail(err, GM_ERR_IO, "cannot be opened: %s: %s", path, strerror(errno));
	gm_csv_open(&reading.csv, stream, path);
	status = read_all(&reading, err);
	gm_csv_close(&reading.csv);
	if (!standard)
		fclose(stream);
	return status;
}

void gm_landings_free(struct gm_landings *landings)
{
	free(landings->landing);
	free(landings->policy);
	free(landings->path);
	*landings = (struct gm_landings){0};
}
