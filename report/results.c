#include "report/results.h"

#include "report/front.h"
#include "report/scale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_BYTES 512

/* The presets of docs/semantics.md, by their parts: the CSV holds the parts only. */
static const struct {
	const char *name, *miss, *evict, *admit;
} presets[] = {
	{"fetch-all", "fetch", "lfu", "fetch"},
	{"rule-0.15", "threshold:0.15", "lfu", "fetch"},
	{"first-choice", "first-choice", "lfu", "fetch"},
	{"quality-first", "threshold:0.15", "lfu", "background:0.5"},
	{"speed-first", "first-choice", "lfu", "background:0.5"},
	{"substitute-all", "substitute", "lfu", "fetch"},
};

/* Settings that stand in a policy's name only where rows differ in them, with the value that goes without saying. */
static const struct {
	const char *column, *usual, *prefix;
} extras[] = {
	{"cache_scope", "layer", ""},
	{"prefill", "token", "prefill "},
	{"warmup", "0", "warm-up "},
	{"preload", "", "preload "},
	{"reset_per_sequence", "false", "reset "},
	{"substitute_weight", "own", "weight "},
	{"drop_weight", "renormalise", "weights "},
};
#define N_EXTRA (sizeof(extras) / sizeof(*extras))

/* --- names --- */

/* The index of a text in a list of distinct names; it is added where it is new. */
static int name_index(struct gm_name **names, size_t *n, const char *text, double value, size_t *index,
		      struct gm_error *err)
{
	/* Rows of one kind stand together: the last few names are the likeliest. */
	for (size_t i = *n; i-- > 0;)
		if (strcmp((*names)[i].text, text) == 0) {
			*index = i;
			return GM_OK;
		}
	if ((*n & (*n - 1)) == 0) /* grows at powers of two */
		GM_GROW(*names, *n ? *n * 2 : 1, err);
	(*names)[*n] = (struct gm_name){gm_strdup(text, err), value};
	if (!(*names)[*n].text)
		return GM_ERR_MEMORY;
	*index = (*n)++;
	return GM_OK;
}

static void free_names(struct gm_name *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(names[i].text);
	free(names);
}

static bool varies(const struct gm_sheet *sheet, size_t column)
{
	for (size_t row = 1; row < sheet->n_row && column != GM_NO_COLUMN; row++)
		if (strcmp(gm_sheet_text(sheet, row, column), gm_sheet_text(sheet, 0, column)) != 0)
			return true;
	return false;
}

struct columns {
	size_t trace, hash, hw, miss, evict, admit, slots, error, extra[N_EXTRA]; /* extra: GM_NO_COLUMN unless it varies */
	bool many_traces, many_hw;
	double *fraction, *hit_rate, *substituted, *dropped, *time;
};

static void add(char *out, const char *prefix, const char *text)
{
	size_t n = strlen(out);

	snprintf(out + n, LABEL_BYTES - n, "%s%s", prefix, text);
}

static void policy_label(const struct gm_sheet *sheet, const struct columns *c, size_t row, char *out)
{
	const char *miss = gm_sheet_text(sheet, row, c->miss), *evict = gm_sheet_text(sheet, row, c->evict),
		   *admit = gm_sheet_text(sheet, row, c->admit);
	bool found = false;

	*out = '\0';
	for (size_t i = 0; i < sizeof(presets) / sizeof(*presets) && !found; i++)
		if (strcmp(miss, presets[i].miss) == 0 && strcmp(evict, presets[i].evict) == 0 &&
		    strcmp(admit, presets[i].admit) == 0) {
			add(out, "", presets[i].name);
			found = true;
		}
	if (!found) {
		add(out, "", strcmp(miss, "none") == 0 ? "baseline" : miss);
		if (*evict)
			add(out, " + ", evict);
		if (*admit && strcmp(admit, "fetch") != 0)
			add(out, " + ", admit);
	}
	for (size_t i = 0; i < N_EXTRA; i++) {
		const char *text = gm_sheet_text(sheet, row, c->extra[i]);

		if (*text == '\0' || strcmp(text, extras[i].usual) == 0)
			continue;
		add(out, ", ", extras[i].prefix);
		add(out, "", text);
	}
}

static void cache_label(const struct gm_sheet *sheet, const struct columns *c, size_t row, char *out)
{
	const char *slots = gm_sheet_text(sheet, row, c->slots);
	char number[GM_SCALE_TEXT];

	if (!isnan(c->fraction[row]))
		snprintf(out, LABEL_BYTES, "%s %%", gm_short_number(100 * c->fraction[row], 3, number));
	else if (*slots)
		snprintf(out, LABEL_BYTES, "%s slots", slots);
	else
		snprintf(out, LABEL_BYTES, "other");
}

/* The hardware of a row; a row that names none (emulate's baseline) goes with the others of its trace. */
static const char *hardware(const struct gm_sheet *sheet, const struct columns *c, size_t row)
{
	const char *hash = gm_sheet_text(sheet, row, c->hash);

	if (*gm_sheet_text(sheet, row, c->hw) == '\0' && c->hw != GM_NO_COLUMN)
		for (size_t other = 0; other < sheet->n_row; other++)
			if (*gm_sheet_text(sheet, other, c->hw) && strcmp(gm_sheet_text(sheet, other, c->hash), hash) == 0)
				return gm_sheet_text(sheet, other, c->hw);
	return gm_sheet_text(sheet, row, c->hw);
}

/* Traces of one name and different content are different scenes too. */
static void scene_label(const struct gm_sheet *sheet, const struct columns *c, size_t row, char *out)
{
	const char *path = gm_sheet_text(sheet, row, c->trace), *slash = strrchr(path, '/'), *hw = hardware(sheet, c, row);

	*out = '\0';
	add(out, "", slash && slash[1] ? slash + 1 : path);
	if (*hw)
		add(out, " on ", hw);
}

/* --- points --- */

static void free_columns(struct columns *c)
{
	free(c->fraction);
	free(c->hit_rate);
	free(c->substituted);
	free(c->dropped);
	free(c->time);
}

static int find_columns(struct columns *c, const struct gm_sheet *sheet, struct gm_error *err)
{
	*c = (struct columns){
		.trace = gm_sheet_find(sheet, "trace"),
		.hash = gm_sheet_find(sheet, "trace_hash"),
		.hw = gm_sheet_find(sheet, "hw"),
		.miss = gm_sheet_find(sheet, "miss"),
		.evict = gm_sheet_find(sheet, "evict"),
		.admit = gm_sheet_find(sheet, "admit"),
		.slots = gm_sheet_find(sheet, "cache_slots"),
		.error = gm_sheet_find(sheet, "error"),
		.fraction = gm_sheet_numbers(sheet, "cache_fraction", err),
		.hit_rate = gm_sheet_numbers(sheet, "hit_rate", err),
		.substituted = gm_sheet_numbers(sheet, "substituted_mass", err),
		.dropped = gm_sheet_numbers(sheet, "dropped_mass", err),
		.time = gm_sheet_numbers(sheet, "time_per_token_us", err),
	};
	if (!c->fraction || !c->hit_rate || !c->substituted || !c->dropped || !c->time)
		return err->code;
	for (size_t i = 0; i < N_EXTRA; i++) {
		c->extra[i] = gm_sheet_find(sheet, extras[i].column);
		if (!varies(sheet, c->extra[i]))
			c->extra[i] = GM_NO_COLUMN;
	}
	return GM_OK;
}

static int make_point(struct gm_results *r, const struct columns *c, size_t row, struct gm_error *err)
{
	struct gm_point *p = &r->point[row];
	char label[LABEL_BYTES];
	const double dropped = isnan(c->dropped[row]) ? 0 : c->dropped[row];

	p->row = row;
	p->cache_fraction = c->fraction[row];
	p->hit_rate = c->hit_rate[row];
	p->lost_mass = c->substituted[row] + dropped;
	if (strcmp(gm_sheet_text(r->sheet, row, c->miss), "none") == 0)
		p->lost_mass = 0; /* emulate's baseline: nothing can be lost */
	p->time_us = c->time[row];
	p->failed = c->error != GM_NO_COLUMN && *gm_sheet_text(r->sheet, row, c->error);
	r->n_failed += p->failed;
	r->has_dropped = r->has_dropped || dropped > 0;
	r->has_times = r->has_times || p->time_us > 0;
	policy_label(r->sheet, c, row, label);
	GM_TRY(name_index(&r->series, &r->n_series, label, (double)NAN, &p->series, err));
	cache_label(r->sheet, c, row, label);
	GM_TRY(name_index(&r->cache, &r->n_cache, label, p->cache_fraction, &p->cache, err));
	scene_label(r->sheet, c, row, label);
	/* The hash keeps contents apart; it is cut off again below. */
	add(label, "\n", gm_sheet_text(r->sheet, row, c->hash));
	return name_index(&r->scene, &r->n_scene, label, (double)NAN, &p->scene, err);
}

/* Scenes that differ in content only get it shown; from the others the hash is taken off. */
static void finish_scenes(struct gm_results *r)
{
	for (size_t i = 0; i < r->n_scene; i++) {
		char *end = strchr(r->scene[i].text, '\n');
		bool alone = true;

		for (size_t j = 0; j < r->n_scene && alone; j++) {
			const char *other = strchr(r->scene[j].text, '\n');
			size_t n = (size_t)(end - r->scene[i].text);

			alone = i == j || strncmp(r->scene[i].text, r->scene[j].text, n) != 0 ||
				(other && (size_t)(other - r->scene[j].text) != n);
		}
		if (!alone)
			*end = '#';
	}
	for (size_t i = 0; i < r->n_scene; i++) {
		char *end = strchr(r->scene[i].text, '\n');
		if (end)
			*end = '\0';
	}
}

static int by_fraction(const void *a, const void *b, void *names)
{
	size_t i = *(const size_t *)a, j = *(const size_t *)b;
	double x = ((const struct gm_name *)names)[i].value, y = ((const struct gm_name *)names)[j].value;

	if (isnan(x) || isnan(y) || x == y)
		return isnan(x) != isnan(y) ? (isnan(x) ? 1 : -1) : (i > j) - (i < j);
	return x < y ? -1 : 1;
}

/* Cache sizes in order of size. */
static int sort_caches(struct gm_results *r, struct gm_error *err)
{
	size_t *order = gm_alloc(r->n_cache, sizeof(*order), err), *place = gm_alloc(r->n_cache, sizeof(*place), err);
	struct gm_name *sorted = gm_alloc(r->n_cache, sizeof(*sorted), err);
	int status = order && place && sorted ? GM_OK : GM_ERR_MEMORY;

	if (status == GM_OK) {
		for (size_t i = 0; i < r->n_cache; i++)
			order[i] = i;
		qsort_r(order, r->n_cache, sizeof(*order), by_fraction, r->cache);
		for (size_t i = 0; i < r->n_cache; i++) {
			place[order[i]] = i;
			sorted[i] = r->cache[order[i]];
		}
		for (size_t i = 0; i < r->n_point; i++)
			r->point[i].cache = place[r->point[i].cache];
		free(r->cache);
		r->cache = sorted;
		sorted = NULL;
	}
	free(sorted);
	free(order);
	free(place);
	return status;
}

/* --- colours --- */

static int colour_by_column(struct gm_results *r, size_t column, struct gm_error *err)
{
	free_names(r->colour, r->n_colour);
	r->colour = NULL;
	r->n_colour = 0;
	for (size_t i = 0; i < r->n_point; i++) {
		const char *text = gm_sheet_text(r->sheet, r->point[i].row, column);
		GM_TRY(name_index(&r->colour, &r->n_colour, text, (double)NAN, &r->point[i].colour, err));
	}
	return GM_OK;
}

/* By policy where there are few; else by the first part of it that has few values; else the first policies and the rest. */
static int choose_colours(struct gm_results *r, struct gm_error *err)
{
	static const char *const columns[] = {"miss", "evict", "admit", "cache_scope"};
	size_t index;

	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns) && r->n_series > GM_MAX_COLOURS; i++) {
		const size_t column = gm_sheet_find(r->sheet, columns[i]);

		if (column == GM_NO_COLUMN)
			continue;
		GM_TRY(colour_by_column(r, column, err));
		if (r->n_colour >= 2 && r->n_colour <= GM_MAX_COLOURS)
			return GM_OK;
	}
	free_names(r->colour, r->n_colour);
	r->colour = NULL;
	r->n_colour = 0;
	for (size_t i = 0; i < r->n_series && i < GM_MAX_COLOURS; i++)
		GM_TRY(name_index(&r->colour, &r->n_colour, r->series[i].text, (double)NAN, &index, err));
	if (r->n_series > GM_MAX_COLOURS)
		GM_TRY(name_index(&r->colour, &r->n_colour, "other policies", (double)NAN, &index, err));
	for (size_t i = 0; i < r->n_point; i++)
		r->point[i].colour = r->point[i].series < GM_MAX_COLOURS ? r->point[i].series : GM_MAX_COLOURS;
	return GM_OK;
}

/* --- front --- */

static int mark_front(struct gm_results *r, size_t scene, size_t cache, double *x, double *y, size_t *index, bool *on,
		      struct gm_error *err)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_point; i++) {
		const struct gm_point *p = &r->point[i];

		if (p->scene != scene || p->cache != cache || p->failed)
			continue;
		x[n] = p->lost_mass;
		y[n] = p->time_us > 0 ? p->time_us : (double)NAN; /* a replay that only counts has no time */
		index[n++] = i;
	}
	GM_TRY(gm_front(x, y, n, on, NULL, NULL, err));
	for (size_t i = 0; i < n; i++)
		r->point[index[i]].on_front = on[i];
	return GM_OK;
}

static int mark_fronts(struct gm_results *r, struct gm_error *err)
{
	double *x = gm_alloc(r->n_point, sizeof(*x), err), *y = gm_alloc(r->n_point, sizeof(*y), err);
	size_t *index = gm_alloc(r->n_point, sizeof(*index), err);
	bool *on = gm_alloc(r->n_point, sizeof(*on), err);
	int status = x && y && index && on ? GM_OK : GM_ERR_MEMORY;

	for (size_t s = 0; s < r->n_scene; s++)
		for (size_t c = 0; c < r->n_cache && status == GM_OK; c++)
			status = mark_front(r, s, c, x, y, index, on, err);
	free(x);
	free(y);
	free(index);
	free(on);
	return status;
}

/* --- all --- */

struct settings_order {
	const struct gm_sheet *sheet;
	size_t column;
};

static int by_settings(const void *a, const void *b, void *data)
{
	const struct settings_order *o = data;
	size_t i = *(const size_t *)a, j = *(const size_t *)b;
	int order = strcmp(gm_sheet_text(o->sheet, i, o->column), gm_sheet_text(o->sheet, j, o->column));

	return order ? order : (i > j) - (i < j);
}

static int make(struct gm_results *r, struct gm_error *err)
{
	struct settings_order order = {r->sheet, gm_sheet_find(r->sheet, "settings_hash")};
	struct columns columns;
	int status;

	r->point = gm_alloc(r->n_point, sizeof(*r->point), err);
	r->by_settings = gm_alloc(r->n_point, sizeof(*r->by_settings), err);
	if (!r->point || !r->by_settings)
		return GM_ERR_MEMORY;
	status = find_columns(&columns, r->sheet, err);
	for (size_t row = 0; row < r->n_point && status == GM_OK; row++) {
		r->by_settings[row] = row;
		status = make_point(r, &columns, row, err);
	}
	free_columns(&columns);
	GM_TRY(status);
	finish_scenes(r);
	GM_TRY(sort_caches(r, err));
	GM_TRY(choose_colours(r, err));
	qsort_r(r->by_settings, r->n_point, sizeof(*r->by_settings), by_settings, &order);
	return mark_fronts(r, err);
}

int gm_results_make(struct gm_results *results, const struct gm_inputs *inputs, struct gm_error *err)
{
	*results = (struct gm_results){.sheet = &inputs->sheet[GM_INPUT_RESULTS]};
	results->n_point = results->sheet->n_row;
	int status = make(results, err);
	if (status < 0)
		gm_results_free(results);
	return status;
}

void gm_results_free(struct gm_results *r)
{
	free_names(r->scene, r->n_scene);
	free_names(r->series, r->n_series);
	free_names(r->colour, r->n_colour);
	free_names(r->cache, r->n_cache);
	free(r->point);
	free(r->by_settings);
	*r = (struct gm_results){0};
}

const char *gm_point_policy(const struct gm_results *r, size_t point)
{
	return r->series[r->point[point].series].text;
}

const char *gm_point_cache(const struct gm_results *r, size_t point)
{
	return r->cache[r->point[point].cache].text;
}

size_t gm_results_find(const struct gm_results *r, const char *trace, const char *settings_hash)
{
	const size_t settings = gm_sheet_find(r->sheet, "settings_hash"), trace_column = gm_sheet_find(r->sheet, "trace");
	size_t low = 0, high = r->n_point;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(gm_sheet_text(r->sheet, r->by_settings[middle], settings), settings_hash) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < r->n_point; low++) {
		size_t row = r->by_settings[low];

		if (strcmp(gm_sheet_text(r->sheet, row, settings), settings_hash) != 0)
			break;
		if (strcmp(gm_sheet_text(r->sheet, row, trace_column), trace) == 0)
			return row;
	}
	return GM_NO_POINT;
}
