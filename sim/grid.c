#include "base/json.h"
#include "base/number.h"
#include "sim/range.h"
#include "sim/settings.h"
#include "sim/settings_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_POINTS 20000 /* a point takes a few kilobytes, so a sweep stays far below its memory */

/* The values of one option; each is a struct gm_settings in which the option's own fields are set. */
struct axis {
	struct gm_settings *value; /* [n] */
	size_t n;
	bool given; /* false: the default */
};

struct gm_grid {
	bool lists;
	struct axis axis[GM_N_AXIS]; /* by option id - GM_OPTION_POLICY */
	struct gm_settings_store store;
	struct gm_items file;      /* grid files */
	struct gm_settings *point; /* [n_point] of the last expansion */
};

/* Replaces an axis. Without --policy there is no preset, so that axis has one value that sets nothing. */
static int set_axis(struct gm_grid *grid, int option_id, const struct gm_items *texts, struct gm_error *err)
{
	struct axis *axis = &grid->axis[option_id - GM_OPTION_POLICY];
	struct gm_settings *value = gm_alloc(texts->n, sizeof(*value), err);
	int status = value ? GM_OK : GM_ERR_MEMORY;

	for (size_t i = 0; i < texts->n && status == GM_OK; i++) {
		value[i].cpu_layers = -1;
		status = gm_settings_set(&grid->store, option_id, texts->text[i], &value[i], err);
	}
	if (status < 0) {
		free(value);
		return status;
	}
	free(axis->value);
	*axis = (struct axis){.value = value, .n = texts->n, .given = true};
	return GM_OK;
}

static int set_default(struct gm_grid *grid, int option_id, const char *text, struct gm_error *err)
{
	struct gm_items texts = {.text = (char **)&text, .n = 1};

	GM_TRY(set_axis(grid, option_id, &texts, err));
	grid->axis[option_id - GM_OPTION_POLICY].given = false;
	grid->axis[option_id - GM_OPTION_POLICY].value->hw_given = false;
	return GM_OK;
}

struct gm_grid *gm_grid_new(bool lists, struct gm_error *err)
{
	static const struct {
		int option_id;
		const char *text;
	} defaults[] = {
		{GM_OPTION_CACHE, "25%"},       {GM_OPTION_CACHE_SCOPE, "layer"}, {GM_OPTION_EVICT, "lru"},
		{GM_OPTION_MISS, "fetch"},      {GM_OPTION_ADMIT, "fetch"},       {GM_OPTION_PREFILL, "token"},
		{GM_OPTION_WARMUP, "0"},        {GM_OPTION_RESET, "false"},       {GM_OPTION_PRELOAD, "none"},
		{GM_OPTION_HEAD_ONLY, "false"},
	};
	struct gm_grid *grid = gm_alloc(1, sizeof(*grid), err);
	int status = grid ? GM_OK : GM_ERR_MEMORY;

	for (size_t i = 0; i < sizeof(defaults) / sizeof(*defaults) && status == GM_OK; i++)
		status = set_default(grid, defaults[i].option_id, defaults[i].text, err);
	if (status < 0) {
		gm_grid_free(grid);
		return NULL;
	}
	grid->lists = lists;
	return grid;
}

void gm_grid_free(struct gm_grid *grid)
{
	if (!grid)
		return;
	for (int i = 0; i < GM_N_AXIS; i++)
		free(grid->axis[i].value);
	gm_settings_store_free(&grid->store);
	gm_items_free(&grid->file);
	free(grid->point);
	free(grid);
}

bool gm_grid_takes(int option_id)
{
	return option_id >= GM_OPTION_POLICY && option_id < GM_OPTION_POLICY + GM_N_AXIS;
}

/* The texts that one item stands for. */
static int expand_item(int option_id, const char *item, struct gm_items *out, struct gm_error *err)
{
	char what[32];
	size_t length = strlen(item);
	bool is_file = option_id == GM_OPTION_CACHE &&
		       (strcmp(item, "-") == 0 || (length > 5 && strcmp(item + length - 5, ".json") == 0));

	snprintf(what, sizeof(what), "--%s", gm_settings_option(option_id)->name);
	if (is_file || !gm_settings_takes_ranges(option_id))
		return gm_items_add(out, item, length, err);
	return gm_range_expand(item, what, out, err);
}

/* A value as typed: a comma list whose items may be ranges. */
static int expand_value(int option_id, const char *value, struct gm_items *out, struct gm_error *err)
{
	struct gm_items items = {0};
	char what[32];

	snprintf(what, sizeof(what), "--%s", gm_settings_option(option_id)->name);
	int status = gm_list_split(value, what, &items, err);
	for (size_t i = 0; i < items.n && status == GM_OK; i++)
		status = expand_item(option_id, items.text[i], out, err);
	gm_items_free(&items);
	return status;
}

int gm_grid_option(struct gm_grid *grid, int option_id, const char *value, struct gm_error *err)
{
	struct gm_items texts = {0};
	int status;

	if (!value)
		value = "true"; /* a flag */
	if (!grid->lists) {
		/* Names of files may hold commas; elsewhere a comma shows that a list was meant. */
		if (strchr(value, ',') && option_id != GM_OPTION_HW && option_id != GM_OPTION_PRELOAD &&
		    !strstr(value, ".json"))
			return gm_fail(err, GM_ERR_USAGE,
				       "a list: --%s \"%.60s\": give one value here; `sim sweep` takes lists",
				       gm_settings_option(option_id)->name, value);
		status = gm_items_add(&texts, value, strlen(value), err);
	} else {
		status = expand_value(option_id, value, &texts, err);
	}
	if (status == GM_OK)
		status = set_axis(grid, option_id, &texts, err);
	gm_items_free(&texts);
	return status;
}

/* --- the same from a JSON file --- */

/* A JSON value as text; NULL where it cannot be a value of an option. */
static const char *scalar_text(const struct gm_json *value, char *buffer)
{
	switch (gm_json_type(value)) {
	case GM_JSON_STRING:
		return gm_json_text(value);
	case GM_JSON_NUMBER:
		return gm_format_double(gm_json_value(value), buffer);
	case GM_JSON_BOOL:
		return gm_json_is_true(value) ? "true" : "false";
	case GM_JSON_NULL:
		return "none";
	default:
		return NULL;
	}
}

static int find_option(const char *key)
{
	for (int id = GM_OPTION_POLICY; gm_grid_takes(id); id++) {
		const char *name = gm_settings_option(id)->name, *k = key;

		for (; *name && (*name == *k || (*name == '-' && *k == '_')); name++)
			k++;
		if (*name == '\0' && *k == '\0')
			return id;
	}
	return 0;
}

/* seen: a bit for each option, so that cache-scope and cache_scope do not stand side by side. */
static int read_member(struct gm_grid *grid, const struct gm_json *member, unsigned *seen, struct gm_error *err)
{
	const char *key = gm_json_key(member), *text;
	int option_id = find_option(key);
	bool is_list = gm_json_type(member) == GM_JSON_ARRAY;
	char buffer[GM_NUMBER_TEXT];
	struct gm_items texts = {0};
	int status = GM_OK;

	if (!option_id)
		return gm_fail(err, GM_ERR_USAGE,
			       "unknown key: key \"%.40s\": give names of policy options, as \"cache-scope\"", key);
	if (*seen & 1u << (option_id - GM_OPTION_POLICY))
		return gm_fail(err, GM_ERR_USAGE, "key stands twice: key \"%s\", written with - and with _: give it once",
			       key);
	*seen |= 1u << (option_id - GM_OPTION_POLICY);
	if (is_list && gm_json_size(member) == 0)
		return gm_fail(err, GM_ERR_USAGE, "empty list: key \"%s\": give at least one value", key);
	for (const struct gm_json *item = is_list ? gm_json_first(member) : member; item && status == GM_OK;
	     item = is_list ? gm_json_next(item) : NULL) {
		text = scalar_text(item, buffer);
		if (!text)
			status = gm_fail(err, GM_ERR_USAGE,
					 "not a value: key \"%s\": give strings, numbers or true and false", key);
		else if (is_list)
			status = expand_item(option_id, text, &texts, err);
		else
			status = expand_value(option_id, text, &texts, err);
	}
	if (status == GM_OK)
		status = set_axis(grid, option_id, &texts, err);
	gm_items_free(&texts);
	return status;
}

int gm_grid_file(struct gm_grid *grid, const char *path, struct gm_error *err)
{
	GM_TRY(gm_items_add(&grid->file, path, strlen(path), err));
	struct gm_json *json = gm_json_parse_file(path, err);
	unsigned seen = 0;
	int status = GM_OK;

	if (!json)
		return err->code;
	if (gm_json_type(json) != GM_JSON_OBJECT)
		status = gm_fail(err, GM_ERR_USAGE,
				 "not a grid: give {\"cache\": [\"10%%\", \"25%%\"], \"evict\": [\"lru\"]}");
	for (const struct gm_json *member = gm_json_first(json); member && status == GM_OK; member = gm_json_next(member))
		status = read_member(grid, member, &seen, err);
	if (status < 0)
		gm_error_at(err, "--grid %s", path);
	gm_json_free(json);
	return status;
}

/* --- the files --- */

/* The file that a value of an option names, or NULL. */
static const char *file_of(int option_id, const struct gm_settings *value)
{
	switch (option_id) {
	case GM_OPTION_CACHE:
		return value->cache_kind == GM_CACHE_LIST ? value->cache_text : NULL;
	case GM_OPTION_HW:
		return value->profile->path;
	case GM_OPTION_PRELOAD:
		return value->preload;
	default:
		return NULL;
	}
}

int gm_grid_inputs(const struct gm_grid *grid, struct gm_file_use **use, size_t *n, struct gm_error *err)
{
	static const struct {
		int option_id;
		const char *what;
	} kinds[] = {{GM_OPTION_CACHE, "--cache"}, {GM_OPTION_HW, "--hw"}, {GM_OPTION_PRELOAD, "--preload"}};
	size_t most = grid->file.n;

	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
		most += grid->axis[kinds[k].option_id - GM_OPTION_POLICY].n;
	if (!(*use = gm_alloc(most, sizeof(**use), err)))
		return GM_ERR_MEMORY;
	*n = 0;
	for (size_t i = 0; i < grid->file.n; i++)
		(*use)[(*n)++] = (struct gm_file_use){.path = grid->file.text[i], .what = "--grid"};
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		const struct axis *axis = &grid->axis[kinds[k].option_id - GM_OPTION_POLICY];

		for (size_t i = 0; i < axis->n; i++) {
			const char *path = file_of(kinds[k].option_id, &axis->value[i]);
			if (path)
				(*use)[(*n)++] = (struct gm_file_use){.path = path, .what = kinds[k].what};
		}
	}
	return GM_OK;
}

/* --- the product --- */

static const struct axis *axis_of(const struct gm_grid *grid, int option_id)
{
	return &grid->axis[option_id - GM_OPTION_POLICY];
}

/* Is every point a stock-ncmoe, with options for a cache beside it? That is a mistake of the command line; a mixed grid runs its
 * other points. */
static int check_stock(const struct gm_grid *grid, bool room_given, struct gm_error *err)
{
	const struct axis *policy = axis_of(grid, GM_OPTION_POLICY);

	if (!room_given || policy->n == 0)
		return GM_OK;
	for (size_t i = 0; i < policy->n; i++)
		if (policy->value[i].cpu_layers < 0)
			return GM_OK;
	return gm_fail(
		err, GM_ERR_USAGE,
		"cache options beside a preset that sets the cache: --policy %s: leave out --cache, --cache-scope and "
		"--preload",
		policy->value[0].policy);
}

static void make_point(const struct gm_grid *grid, size_t index, bool room_given, struct gm_settings *point)
{
	size_t choice[GM_N_AXIS];

	for (int i = GM_N_AXIS; i-- > 0;) {
		size_t n = grid->axis[i].n ? grid->axis[i].n : 1;
		choice[i] = index % n;
		index /= n;
	}
	*point = (struct gm_settings){.cpu_layers = -1, .room_given = room_given};
	/* Defaults, then the preset, then what was given: wherever it stands on the command line. */
	for (int i = 0; i < GM_N_AXIS; i++)
		if (!grid->axis[i].given && grid->axis[i].n)
			gm_settings_apply(GM_OPTION_POLICY + i, &grid->axis[i].value[choice[i]], point);
	for (int i = 0; i < GM_N_AXIS; i++)
		if (grid->axis[i].given)
			gm_settings_apply(GM_OPTION_POLICY + i, &grid->axis[i].value[choice[i]], point);
}

int gm_grid_expand(struct gm_grid *grid, const struct gm_settings **settings, size_t *n, struct gm_error *err)
{
	bool room_given = axis_of(grid, GM_OPTION_CACHE)->given || axis_of(grid, GM_OPTION_CACHE_SCOPE)->given ||
			  axis_of(grid, GM_OPTION_PRELOAD)->given;
	size_t n_point = 1;

	GM_TRY(check_stock(grid, room_given, err));
	if (axis_of(grid, GM_OPTION_HW)->n == 0)
		GM_TRY(set_default(grid, GM_OPTION_HW, GM_DEFAULT_PROFILE, err));
	for (int i = 0; i < GM_N_AXIS; i++) {
		size_t n_value = grid->axis[i].n ? grid->axis[i].n : 1;
		if (n_value > MAX_POINTS / n_point)
			return gm_fail(err, GM_ERR_USAGE, "too many grid points: the product of all lists: give at most %d",
				       MAX_POINTS);
		n_point *= n_value;
	}
	free(grid->point);
	if (!(grid->point = gm_alloc(n_point, sizeof(*grid->point), err)))
		return GM_ERR_MEMORY;
	for (size_t i = 0; i < n_point; i++)
		make_point(grid, i, room_given, &grid->point[i]);
	*settings = grid->point;
	*n = n_point;
	return GM_OK;
}
