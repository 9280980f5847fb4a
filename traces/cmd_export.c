/* `traces export`: a trace in a format that others read. */
#include "traces/commands.h"
#include "traces/export_common.h"

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
