#include "base/number.h"
#include "traces/commands.h"

#include <stdio.h>
#include <string.h>

int gm_parse_tail(const char *text, enum gm_tail *tail, struct gm_error *err)
{
	for (int t = GM_TAIL_NONE; t <= GM_TAIL_F32; t++) {
		if (strcmp(text, gm_tail_name((enum gm_tail)t)) == 0) {
			*tail = (enum gm_tail)t;
			return GM_OK;
		}
	}
	return gm_fail(err, GM_ERR_USAGE, "unknown tail: --tail %.40s: f32, f16 or none", text);
}

const char *gm_tail_name(enum gm_tail tail)
{
	return tail == GM_TAIL_F32 ? "f32" : tail == GM_TAIL_F16 ? "f16" : "none";
}

const char *gm_kind_name(enum gm_trace_kind kind)
{
	return kind == GM_KIND_TOPK ? "topk" : "logits";
}

int gm_parse_part_bytes(const char *text, const char *option, uint64_t *bytes, struct gm_error *err)
{
	GM_TRY(gm_parse_bytes(text, option, bytes, NULL, err));
	if (*bytes >= 1 && *bytes <= GM_MAX_PART_BYTES)
		return GM_OK;
	return gm_fail(err, GM_ERR_USAGE,
		       "out of range: %s \"%.40s\": give one from 1 byte to 2^48, or leave it out where it is not known",
		       option, text);
}

int gm_parse_range(const char *text, uint64_t *first, uint64_t *last)
{
	const char *dots = strstr(text, "..");
	char from[24];
	size_t n = dots ? (size_t)(dots - text) : strlen(text);

	if (n >= sizeof(from))
		return GM_ERR_USAGE;
	memcpy(from, text, n);
	from[n] = '\0';
	GM_TRY(gm_parse_u64(from, "", 0, UINT64_MAX, first, NULL));
	if (!dots)
		*last = *first;
	else if (dots[2] == '\0')
		*last = UINT64_MAX;
	else
		GM_TRY(gm_parse_u64(dots + 2, "", 0, UINT64_MAX, last, NULL));
	return *last < *first ? GM_ERR_USAGE : GM_OK;
}

int gm_parse_index_list(const char *text, const char *what, uint32_t limit, bool *chosen, struct gm_error *err)
{
	char item[64];

	for (const char *at = text;; at++) {
		size_t n = strcspn(at, ",");
		uint64_t first = 0, last = 0;

		snprintf(item, sizeof(item), "%.*s", (int)(n < sizeof(item) ? n : sizeof(item) - 1), at);
		if (gm_parse_range(item, &first, &last) < 0)
			return gm_fail(err, GM_ERR_USAGE, "not a number or range: %s \"%.60s\": such as 0,4..7", what,
				       item);
		if (last == UINT64_MAX && first < limit)
			last = limit - 1;
		if (last >= limit)
			return gm_fail(err, GM_ERR_USAGE, "past the end: %s \"%.60s\": 0 to %u", what, item, limit - 1);
		for (uint64_t i = first; i <= last; i++)
			chosen[i] = true;
		at += n;
		if (!*at)
			return GM_OK;
	}
}

/* --- header --- */

const char *gm_header_source(const struct gm_trace *trace)
{
	return gm_json_text(gm_json_get(gm_trace_header(trace), "source"));
}

bool gm_header_has(const struct gm_trace *trace, const char *column)
{
	return gm_json_is_true(gm_json_get(gm_trace_header(trace), column));
}

struct gm_json *gm_header_metadata(const struct gm_trace *trace, struct gm_error *err)
{
	/* What the writer puts there itself (docs/trace-format.md). */
	static const char *const own[] = {"format", "kind",         "head",        "tail",    "logprobs", "predictions",
					  "tool",   "source",       "model",       "n_layer", "n_expert", "n_expert_used",
					  "gating", "expert_bytes", "dense_bytes", "bias",    "n_group",  "topk_group"};
	struct gm_json *metadata = gm_json_copy(gm_trace_header(trace), err);

	for (size_t i = 0; metadata && i < sizeof(own) / sizeof(own[0]); i++)
		gm_json_remove(metadata, own[i]);
	return metadata;
}
