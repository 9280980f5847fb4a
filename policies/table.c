#include "policies/table.h"

#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

extern const struct gm_evict_ops gm_evict_nop, gm_evict_lru, gm_evict_fifo, gm_evict_lfu, gm_evict_lfu_decay,
	gm_evict_belady, gm_evict_belady_bypass;
extern const struct gm_miss_ops gm_miss_fetch, gm_miss_threshold, gm_miss_first_choice, gm_miss_substitute, gm_miss_drop,
	gm_miss_cpu, gm_miss_compose;
extern const struct gm_admit_ops gm_admit_fetch, gm_admit_background;

const struct gm_evict_ops *const gm_evict_table[] = {
	&gm_evict_lru,    &gm_evict_fifo,          &gm_evict_lfu, &gm_evict_lfu_decay,
	&gm_evict_belady, &gm_evict_belady_bypass, &gm_evict_nop, NULL,
};

const struct gm_miss_ops *const gm_miss_table[] = {
	&gm_miss_fetch, &gm_miss_threshold, &gm_miss_first_choice, &gm_miss_substitute,
	&gm_miss_drop,  &gm_miss_cpu,       &gm_miss_compose,      NULL,
};

const struct gm_admit_ops *const gm_admit_table[] = {&gm_admit_fetch, &gm_admit_background, NULL};

const struct gm_preset gm_preset_table[] = {
	{"fetch-all", "wait for every miss", "lfu", "fetch", "fetch", false},
	{"rule-0.15", "wait for first choices and weights of at least 0.15", "lfu", "threshold:0.15", "fetch", false},
	{"first-choice", "wait for first choices only", "lfu", "first-choice", "fetch", false},
	{"quality-first", "rule-0.15 with background admission", "lfu", "threshold:0.15", "background:0.5", false},
	{"speed-first", "first-choice with background admission", "lfu", "first-choice", "background:0.5", false},
	{"substitute-all", "wait for nothing", "lfu", "substitute", "fetch", false},
	{"stock-ncmoe", "the experts of the first LAYERS layers are computed on the CPU, the others are resident", NULL,
	 "cpu", "fetch", true},
	{NULL, NULL, NULL, NULL, NULL, false},
};

/* Splits "name:arg:arg"; out[i] gets the pieces, of which there are at most max + 1. */
static int split(const char *text, char *buffer, size_t size, const char *out[], int max)
{
	int n = 0;

	snprintf(buffer, size, "%s", text);
	for (char *piece = buffer; piece && n <= max; n++) {
		char *colon = strchr(piece, ':');

		out[n] = piece;
		if (colon)
			*colon++ = '\0';
		piece = colon;
	}
	return n;
}

static int parse_word(const struct gm_param *param, const char *policy, const char *text, double *out, struct gm_error *err)
{
	char known[96] = "";

	for (int i = 0; param->words[i]; i++) {
		if (strcmp(param->words[i], text) == 0) {
			*out = i;
			return GM_OK;
		}
		snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i ? ", " : "", param->words[i]);
	}
	return gm_fail(err, GM_ERR_USAGE, "unknown %s of %s \"%s\": one of %s", param->name, policy, text, known);
}

static int parse_number(const struct gm_param *param, const char *policy, const char *text, double *out,
			struct gm_error *err)
{
	char min[GM_NUMBER_TEXT], max[GM_NUMBER_TEXT];

	if (gm_parse_double(text, param->name, out, NULL) == GM_OK && *out >= param->min && *out <= param->max &&
	    !(param->above_min && *out <= param->min))
		return GM_OK;
	return gm_fail(err, GM_ERR_USAGE, "%s of %s is \"%s\": a number %s %s and at most %s", param->name, policy, text,
		       param->above_min ? "above" : "of at least", gm_format_double(param->min, min),
		       gm_format_double(param->max, max));
}

static int parse_args(const struct gm_policy_info *info, const char *const piece[], int n_piece, double *arg,
		      struct gm_error *err)
{
	char usage[GM_POLICY_TEXT];

	if (n_piece != info->n_param)
		return gm_fail(err, GM_ERR_USAGE, "%s takes %d argument%s, %d given: write %s", info->name, info->n_param,
			       info->n_param == 1 ? "" : "s", n_piece, gm_policy_usage(info, usage));
	for (int i = 0; i < info->n_param; i++) {
		const struct gm_param *param = &info->param[i];

		if (param->words)
			GM_TRY(parse_word(param, info->name, piece[i], &arg[i], err));
		else
			GM_TRY(parse_number(param, info->name, piece[i], &arg[i], err));
	}
	return GM_OK;
}

const struct gm_policy_info *gm_policy_info(enum gm_policy_kind kind, int index)
{
	switch (kind) {
	case GM_POLICY_EVICT:
		return gm_evict_table[index] ? &gm_evict_table[index]->info : NULL;
	case GM_POLICY_MISS:
		return gm_miss_table[index] ? &gm_miss_table[index]->info : NULL;
	case GM_POLICY_ADMIT:
		return gm_admit_table[index] ? &gm_admit_table[index]->info : NULL;
	}
	return NULL;
}

const char *gm_policy_kind_name(enum gm_policy_kind kind)
{
	static const char *const name[] = {"eviction policy", "miss rule", "admission"};

	return name[kind];
}

/* Finds text in a table; returns its index there. */
static int parse(enum gm_policy_kind kind, const char *text, double *arg, struct gm_error *err)
{
	const struct gm_policy_info *info;
	const char *piece[GM_MAX_ARG + 2];
	char buffer[GM_POLICY_TEXT];
	char known[160] = "";

	if (strlen(text) >= sizeof(buffer))
		return gm_fail(err, GM_ERR_USAGE, "unknown %s: %.20s...", gm_policy_kind_name(kind), text);
	int n_piece = split(text, buffer, sizeof(buffer), piece, GM_MAX_ARG + 1);

	for (int i = 0; (info = gm_policy_info(kind, i)); i++) {
		if (strcmp(info->name, piece[0]) == 0) {
			GM_TRY(parse_args(info, piece + 1, n_piece - 1, arg, err));
			return i;
		}
		snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i ? ", " : "", info->name);
	}
	return gm_fail(err, GM_ERR_USAGE, "unknown %s: one of %s", gm_policy_kind_name(kind), known);
}

int gm_evict_parse(const char *text, struct gm_evict *out, struct gm_error *err)
{
	*out = (struct gm_evict){0};
	int index = parse(GM_POLICY_EVICT, text, out->arg, err);

	GM_TRY(index);
	out->ops = gm_evict_table[index];
	return GM_OK;
}

int gm_miss_parse(const char *text, struct gm_miss *out, struct gm_error *err)
{
	*out = (struct gm_miss){0};
	int index = parse(GM_POLICY_MISS, text, out->arg, err);

	GM_TRY(index);
	out->ops = gm_miss_table[index];
	return GM_OK;
}

int gm_admit_parse(const char *text, struct gm_admit *out, struct gm_error *err)
{
	*out = (struct gm_admit){0};
	int index = parse(GM_POLICY_ADMIT, text, out->arg, err);

	GM_TRY(index);
	out->ops = gm_admit_table[index];
	return GM_OK;
}

char *gm_policy_format(const struct gm_policy_info *info, const double *arg, char *out)
{
	size_t n = (size_t)snprintf(out, GM_POLICY_TEXT, "%s", info->name);

	for (int i = 0; i < info->n_param && n < GM_POLICY_TEXT; i++) {
		char number[GM_NUMBER_TEXT];
		const char *text =
			info->param[i].words ? info->param[i].words[lround(arg[i])] : gm_format_double(arg[i], number);

		n += (size_t)snprintf(out + n, GM_POLICY_TEXT - n, ":%s", text);
	}
	return out;
}

char *gm_policy_usage(const struct gm_policy_info *info, char *out)
{
	size_t n = (size_t)snprintf(out, GM_POLICY_TEXT, "%s", info->name);

	for (int i = 0; i < info->n_param && n < GM_POLICY_TEXT; i++) {
		const struct gm_param *param = &info->param[i];

		if (!param->words) {
			n += (size_t)snprintf(out + n, GM_POLICY_TEXT - n, ":%s", param->name);
			continue;
		}
		for (int w = 0; param->words[w] && n < GM_POLICY_TEXT; w++)
			n += (size_t)snprintf(out + n, GM_POLICY_TEXT - n, "%c%s", w ? '|' : ':', param->words[w]);
	}
	return out;
}
