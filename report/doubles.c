#include "report/doubles.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define N_KEY 8

struct keys {
	const struct gm_sheet *sheet;
	size_t column[N_KEY]; /* those that name what a row is about */
};

static void find_keys(struct keys *k, const struct gm_sheet *sheet)
{
	static const char *const names[N_KEY] = {"trace_hash", "settings_hash", "layer", "sequence",
						 "token",      "statistic",     "index", "substitute_weight"};

	k->sheet = sheet;
	for (size_t i = 0; i < N_KEY; i++)
		k->column[i] = gm_sheet_find(sheet, names[i]);
	if (k->column[0] == GM_NO_COLUMN) /* files by token have no hash */
		k->column[0] = gm_sheet_find(sheet, "trace");
}

static int compare_keys(const struct keys *k, size_t a, size_t b)
{
	int order = 0;

	for (size_t i = 0; i < N_KEY && order == 0; i++)
		order = strcmp(gm_sheet_text(k->sheet, a, k->column[i]), gm_sheet_text(k->sheet, b, k->column[i]));
	return order;
}

static int by_key(const void *left, const void *right, void *keys)
{
	const size_t a = *(const size_t *)left, b = *(const size_t *)right;
	int order = compare_keys(keys, a, b);

	return order ? order : (a > b) - (a < b);
}

/* Names of files and programs may differ between two runs of the same. */
static bool is_origin(const char *column)
{
	return strcmp(column, "trace") == 0 || strcmp(column, "version") == 0 || strcmp(column, "preload") == 0;
}

/* The first column in which two rows differ, or GM_NO_COLUMN. */
static size_t differ(const struct gm_sheet *sheet, size_t a, size_t b)
{
	for (size_t c = 0; c < sheet->n_column; c++)
		if (!is_origin(sheet->column[c]) && strcmp(gm_sheet_text(sheet, a, c), gm_sheet_text(sheet, b, c)) != 0)
			return c;
	return GM_NO_COLUMN;
}

/* Of rows about the same thing the first is kept; drop [n_row]. */
static int find(const struct gm_sheet *sheet, bool *drop, size_t *n_double, struct gm_error *err)
{
	size_t *order = gm_alloc(sheet->n_row, sizeof(*order), err);
	char right[160];
	struct keys keys;
	int status = order ? GM_OK : GM_ERR_MEMORY;

	find_keys(&keys, sheet);
	for (size_t i = 0; order && i < sheet->n_row; i++)
		order[i] = i;
	if (order)
		qsort_r(order, sheet->n_row, sizeof(*order), by_key, &keys);
	for (size_t i = 1, first = 0; i < sheet->n_row && status == GM_OK; i++) {
		if (compare_keys(&keys, order[first], order[i]) != 0) {
			first = i;
			continue;
		}
		size_t column = differ(sheet, order[first], order[i]);
		if (column != GM_NO_COLUMN) {
			snprintf(right, sizeof(right),
				 "%.60s, line %" PRIu64 " has \"%.30s\" for the same trace and settings",
				 gm_sheet_file_name(sheet, order[first]), sheet->place[order[first]].line,
				 gm_sheet_text(sheet, order[first], column));
			status = gm_sheet_fail(sheet, order[i], column, "two results for one thing", right, err);
		}
		drop[order[i]] = true;
		++*n_double;
	}
	free(order);
	return status;
}

int gm_doubles_check(const struct gm_sheet *sheet, struct gm_error *err)
{
	bool *drop = gm_alloc(sheet->n_row, sizeof(*drop), err);
	size_t n_double = 0;
	int status = drop ? find(sheet, drop, &n_double, err) : GM_ERR_MEMORY;

	free(drop);
	return status;
}

int gm_doubles_remove(struct gm_sheet *sheet, size_t *n_double, struct gm_error *err)
{
	bool *drop = gm_alloc(sheet->n_row, sizeof(*drop), err);
	int status = drop ? find(sheet, drop, n_double, err) : GM_ERR_MEMORY;
	size_t n = 0;

	for (size_t row = 0; status == GM_OK && row < sheet->n_row; row++)
		if (!drop[row]) {
			memmove(sheet->cell + n * sheet->n_column, sheet->cell + row * sheet->n_column,
				sheet->n_column * sizeof(*sheet->cell));
			sheet->place[n++] = sheet->place[row];
		}
	if (status == GM_OK)
		sheet->n_row = n;
	free(drop);
	return status;
}
