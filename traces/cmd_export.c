/* `traces export`: a trace in a format that others read. */
#include "traces/commands.h"
#include "traces/export_common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, OUT, META, EXTRA, QUIET };

struct state {
	const struct gm_exporter *exporter;
	struct gm_export_options options;
};

static const struct gm_option options[] = {
	{FORMAT, 'f', "format", "NAME",
	 "format of the output:\n"
	 "  jsonl     a JSON object a row with all its logits\n"
	 "  topk-csv  the selected experts and their weights; from any trace\n"
	 "  npy       float32 array [tokens, layers, experts] and its facts (--meta)"},
	{OUT, 'o', "out", "FILE", "the file to write (default -: standard output)"},
	{META, 0, "meta", "FILE", "npy: where the facts go (default: the output's\nname and .json)"},
	{EXTRA, 0, "extra", NULL, "topk-csv: also the columns pass and token"},
	{QUIET, 'q', "quiet", NULL, "no progress, no notes"},
	{0, 0, NULL, NULL, NULL},
};

static int take_option(int id, const char *value, void *state, struct gm_error *err)
{
	struct state *s = state;

	switch (id) {
	case FORMAT:
		s->exporter = gm_exporter_find(value, err);
		return s->exporter ? GM_OK : GM_ERR_USAGE;
	case OUT:
		s->options.output = value;
		break;
	case META:
		s->options.meta = value;
		break;
	case EXTRA:
		s->options.extra = true;
		break;
	default:
		s->options.quiet = true;
		break;
	}
	return GM_OK;
}

/* Can this trace be written in that format? */
static int check(const struct state *s, const struct gm_trace *trace, struct gm_error *err)
{
	if (s->exporter->needs_logits && gm_trace_kind(trace) == GM_KIND_TOPK)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "a top-k only trace has no logits to export: %s: export --format topk-csv",
			       gm_trace_path(trace));
	if (s->exporter->needs_logits && !gm_has_all_logits(trace))
		return gm_fail(
			err, GM_ERR_UNSUPPORTED,
			"this trace kept the %u best logits of a row only (tail: none): %s: export --format topk-csv, or "
			"record with a tail",
			gm_trace_n_head(trace), gm_trace_path(trace));
	if (s->exporter->needs_seek && !gm_trace_seekable(trace))
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "a trace from a pipe is read once, %s needs it twice: save it to a file", s->exporter->name);
	return GM_OK;
}

/* The facts of an array go beside it unless --meta says where. */
static int check_files(const struct state *s, const char *input, struct gm_error *err)
{
	const struct gm_export_options *o = &s->options;
	size_t n = strlen(o->output) + sizeof(".json");
	bool named = o->meta || !s->exporter->takes_meta || strcmp(o->output, "-") == 0;
	char *beside = named ? NULL : gm_alloc(n, 1, err);

	if (!named && !beside)
		return GM_ERR_MEMORY;
	if (beside)
		snprintf(beside, n, "%s.json", o->output);
	const struct gm_file_use use[] = {
		{input, "TRACE", false},
		{o->output, "--out", true},
		{beside ? beside : o->meta, beside ? "the facts beside --out" : "--meta", true},
	};
	int status = gm_files_check(use, 3, err);

	free(beside);
	return status;
}

static int run(int n_operand, char **operand, void *state, struct gm_error *err)
{
	struct state *s = state;
	struct gm_trace *trace;
	int status;

	(void)n_operand;
	if (!s->exporter)
		return gm_fail(err, GM_ERR_USAGE, "no format: --format NAME: traces export --help lists them");
	if (s->options.meta && !s->exporter->takes_meta)
		return gm_fail(err, GM_ERR_USAGE, "no use for it: --meta: %s has its facts in its first line",
			       s->exporter->name);
	if (!s->options.output)
		s->options.output = "-";
	GM_TRY(check_files(s, operand[0], err));
	trace = gm_trace_open(operand[0], err);
	if (!trace)
		return err->code;
	status = check(s, trace, err);
	if (status == GM_OK)
		status = s->exporter->run(trace, &s->options, err);
	gm_trace_close(trace);
	return status;
}

static const struct gm_option *const tables[] = {options};

const struct gm_command gm_traces_export = {
	.name = "export",
	.usage = "--format NAME [options] TRACE.gmt",
	.help = "Write a trace in a format that other programs read, with full precision.\n"
		"TRACE may be - for standard input.",
	.example = "traces export --format topk-csv -o model.csv model.gmt",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = 1,
	.run = run,
	.option = take_option,
	.state_bytes = sizeof(struct state),
};
