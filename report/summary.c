#include "report/summary.h"

#include <math.h>
#include <string.h>

int gm_summary_make(struct gm_sheet *summary, const struct gm_results *r, struct gm_error *err)
{
	static const char *const first[] = {"policy", "cache", "front"};

	for (size_t i = 0; i < sizeof(first) / sizeof(*first); i++)
		GM_TRY(gm_sheet_add_column(summary, first[i], err));
	for (size_t c = 0; c < r->sheet->n_column; c++)
		GM_TRY(gm_sheet_add_column(summary, r->sheet->column[c], err));
	for (size_t i = 0; i < r->n_point; i++) {
		GM_TRY(gm_sheet_put(summary, gm_point_policy(r, i), err));
		GM_TRY(gm_sheet_put(summary, gm_point_cache(r, i), err));
		GM_TRY(gm_sheet_put(summary, r->point[i].on_front ? "yes" : "", err));
		for (size_t c = 0; c < r->sheet->n_column; c++)
			GM_TRY(gm_sheet_put(summary, gm_sheet_text(r->sheet, i, c), err));
	}
	return GM_OK;
}

bool gm_summary_is_constant(const struct gm_sheet *sheet, size_t column)
{
	for (size_t row = 1; row < sheet->n_row; row++)
		if (strcmp(gm_sheet_text(sheet, row, column), gm_sheet_text(sheet, 0, column)) != 0)
			return false;
	return true;
}

static bool in_list(const char *const *list, const char *name)
{
	while (*list && strcmp(*list, name) != 0)
		list++;
	return *list != NULL;
}

/* Is there a number other than 0? */
static bool says_something(const struct gm_sheet *sheet, size_t column)
{
	double value;

	for (size_t row = 0; row < sheet->n_row; row++)
		if (gm_sheet_number(sheet, row, column, &value, NULL) == GM_OK && value != 0 && !isnan(value))
			return true;
	return false;
}

/* Are there two texts, empty ones aside? */
static bool differs(const struct gm_sheet *sheet, size_t column)
{
	const char *first = "";

	for (size_t row = 0; row < sheet->n_row; row++) {
		const char *text = gm_sheet_text(sheet, row, column);

		if (*first && *text && strcmp(text, first) != 0)
			return true;
		first = *text ? text : first;
	}
	return false;
}

bool gm_summary_is_usual(const struct gm_sheet *summary, size_t column)
{
	static const char *const names[] = {"policy", "cache", NULL};
	static const char *const numbers[] = {"hit_rate",
					      "substituted_mass",
					      "dropped_mass",
					      "time_per_token_us",
					      "tokens_per_s",
					      "perplexity",
					      "link_bytes_per_token",
					      "perplexity_change_pct",
					      NULL};
	static const char *const origins[] = {"trace", "hw", NULL}, *const marks[] = {"front", "error", NULL};
	const char *name = summary->column[column];

	return in_list(names, name) || (in_list(numbers, name) && says_something(summary, column)) ||
	       (in_list(origins, name) && differs(summary, column)) ||
	       (in_list(marks, name) && !gm_summary_is_constant(summary, column));
}
