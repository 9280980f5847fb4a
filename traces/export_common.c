#include "traces/export_common.h"

#include "base/number.h"
#include "traces/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct gm_exporter gm_exporters[] = {
	{"jsonl", "one JSON object a row with all its logits", true, false, false, gm_export_jsonl},
	{"topk-csv", "the selected experts and their gate weights, one a line; from any trace", false, false, false,
	 gm_export_topk_csv},
	{"npy", "float32 array [tokens, layers, experts], facts in the file of --meta", true, true, true, gm_export_npy},
	{NULL, NULL, false, false, false, NULL},
};

const struct gm_exporter *gm_exporter_find(const char *name, struct gm_error *err)
{
	char known[128] = "";
	size_t n = 0;

	for (const struct gm_exporter *e = gm_exporters; e->name; e++) {
		if (strcmp(e->name, name) == 0)
			return e;
		if (n < sizeof(known))
			n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", n ? ", " : "", e->name);
	}
	gm_fail(err, GM_ERR_USAGE, "unknown format: --format %.60s: one of %s", name, known);
	return NULL;
}

/* A whole number as an import writes it: no sign, no leading zero. */
static bool number_of_id(const char *id, uint32_t *number)
{
	uint64_t value = 0;

	if (*id == '\0' || (*id == '0' && id[1]) || gm_parse_u64(id, "", 0, UINT32_MAX, &value, NULL) < 0)
		return false;
	*number = (uint32_t)value;
	return true;
}

struct gm_sequence_names gm_sequence_names(const struct gm_trace *trace)
{
	struct gm_sequence_names names = {.trace = trace, .by_id = gm_trace_seekable(trace)};
	uint32_t number = 0, before = 0;

	for (uint32_t i = 0; names.by_id && i < gm_trace_n_sequence(trace); i++) {
		names.by_id = number_of_id(gm_trace_sequence(trace, i)->id, &number) && (i == 0 || number > before);
		before = number;
	}
	return names;
}

uint32_t gm_sequence_number(const struct gm_sequence_names *names, uint32_t index)
{
	uint32_t number = index;

	if (names->by_id)
		number_of_id(gm_trace_sequence(names->trace, index)->id, &number);
	return number;
}

struct gm_json *gm_export_facts(const struct gm_trace *trace, const char *format, struct gm_error *err)
{
	struct gm_json *facts = gm_json_new_object(), *metadata = gm_header_metadata(trace, err);
	const char *source = gm_header_source(trace);
	bool ok = facts && metadata && (!format || gm_json_add_string(facts, "format", format));

	if (ok && gm_model_to_json(gm_trace_model(trace), facts, err) < 0)
		ok = false;
	if (ok && source && *source)
		ok = gm_json_add_string(facts, "source", source);
	for (const struct gm_json *m = metadata ? gm_json_first(metadata) : NULL; ok && m; m = gm_json_next(m))
		if (!gm_json_get(facts, gm_json_key(m)))
			ok = gm_json_add(facts, gm_json_key(m), gm_json_copy(m, err));
	gm_json_free(metadata);
	if (ok)
		return facts;
	gm_json_free(facts);
	gm_fail(err, GM_ERR_MEMORY, "out of memory");
	return NULL;
}

int gm_export_sequences(const struct gm_trace *trace, struct gm_json *facts, struct gm_error *err)
{
	struct gm_json *list = gm_json_new_array();
	bool ok = list != NULL;

	for (uint32_t i = 0; ok && i < gm_trace_n_sequence(trace); i++) {
		const struct gm_sequence *s = gm_trace_sequence(trace, i);
		struct gm_json *entry = gm_json_new_object();

		ok = gm_json_add_string(entry, "id", s->id) && gm_json_add_string(entry, "label", s->label) &&
		     gm_json_add_uint(entry, "length", s->n_token);
		ok = gm_json_append(list, entry) && ok;
	}
	ok = gm_json_add(facts, "sequences", list) && ok;
	return ok ? GM_OK : gm_fail(err, GM_ERR_MEMORY, "out of memory");
}

size_t gm_format_float(float value, char *out)
{
	/* Powers of ten up to 10^22 are exact doubles, so that a float times one of them is rounded once, to 16 digits. */
	static const double power[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
	double a = value < 0 ? -(double)value : (double)value;
	char digit[16], *at = out;
	int whole = 1; /* digits before the point */

	if (!(a >= 1e-3 && a < 1e6)) /* the rare ones, and 0 */
		return (size_t)snprintf(out, GM_FLOAT_TEXT, "%.9g", (double)value);
	while (whole > -2 && a < (whole > 0 ? power[whole - 1] : 1.0 / power[1 - whole]))
		whole--;
	while (a >= power[whole > 0 ? whole : 0] && whole > 0)
		whole++;
	uint64_t n = (uint64_t)(a * power[9 - whole] + 0.5);
	int last = 8;

	for (int i = 8; i >= 0; i--, n /= 10)
		digit[i] = (char)('0' + n % 10);
	if (n > 0) /* rounded up to the next power of ten */
		return (size_t)snprintf(out, GM_FLOAT_TEXT, "%.9g", (double)value);
	while (last > 0 && digit[last] == '0')
		last--;
	if (value < 0)
		*at++ = '-';
	if (whole <= 0) {
		*at++ = '0';
		*at++ = '.';
		for (int i = whole; i < 0; i++)
			*at++ = '0';
	}
	for (int i = 0; i <= last || i < whole; i++) {
		if (i == whole && whole > 0)
			*at++ = '.';
		*at++ = digit[i];
	}
	*at = '\0';
	return (size_t)(at - out);
}
