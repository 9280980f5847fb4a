#include "report/columns.h"

#include <stdio.h>
#include <string.h>

static const struct gm_known_column known[] = {
	{"trace", GM_FORM_TEXT, "trace", 0},
	{"model", GM_FORM_TEXT, "model", 0},
	{"n_layer", GM_FORM_COUNT, "layers", 0},
	{"n_expert", GM_FORM_COUNT, "experts", 0},
	{"n_expert_used", GM_FORM_COUNT, "experts used", 0},
	{"policy", GM_FORM_TEXT, "policy", 0},
	{"cache", GM_FORM_TEXT, "cache", 0},
	{"cache_slots", GM_FORM_REAL, "slots", 0},
	{"cache_fraction", GM_FORM_SHARE, "cache", 0},
	{"cache_scope", GM_FORM_TEXT, "scope", 0},
	{"evict", GM_FORM_TEXT, "eviction", 0},
	{"miss", GM_FORM_TEXT, "miss rule", 0},
	{"admit", GM_FORM_TEXT, "admission", 0},
	{"prefill", GM_FORM_TEXT, "prefill", 0},
	{"hw", GM_FORM_TEXT, "hardware", 0},
	{"warmup", GM_FORM_COUNT, "warm-up", 0},
	{"tokens", GM_FORM_COUNT, "tokens", 0},
	{"rows", GM_FORM_COUNT, "rows", 0},
	{"picks", GM_FORM_COUNT, "picks", 0},
	{"accesses", GM_FORM_COUNT, "accesses", 0},
	{"hits", GM_FORM_COUNT, "hits", 1},
	{"late_hits", GM_FORM_COUNT, "late hits", 0},
	{"misses", GM_FORM_COUNT, "misses", -1},
	{"fetches", GM_FORM_COUNT, "fetches", -1},
	{"substitutions", GM_FORM_COUNT, "substitutions", -1},
	{"drops", GM_FORM_COUNT, "drops", -1},
	{"cpu_picks", GM_FORM_COUNT, "CPU picks", 0},
	{"substitute_fallbacks", GM_FORM_COUNT, "fallbacks", -1},
	{"bypasses", GM_FORM_COUNT, "bypasses", 0},
	{"background_copies", GM_FORM_COUNT, "background copies", 0},
	{"evictions", GM_FORM_COUNT, "evictions", 0},
	{"link_bytes", GM_FORM_COUNT, "link bytes", -1},
	{"hit_rate", GM_FORM_SHARE, "hit rate", 1},
	{"substituted_rate", GM_FORM_SHARE, "substituted picks", -1},
	{"substituted_mass", GM_FORM_SHARE, "substituted mass", -1},
	{"dropped_mass", GM_FORM_SHARE, "dropped mass", -1},
	{"lost_mass", GM_FORM_SHARE, "lost mass", -1},
	{"time_per_token_us", GM_FORM_REAL, "\xc2\xb5s a token", -1},
	{"tokens_per_s", GM_FORM_REAL, "tokens/s", 1},
	{"link_bytes_per_token", GM_FORM_REAL, "link bytes a token", -1},
	{"time_dense_us", GM_FORM_REAL, "dense \xc2\xb5s", -1},
	{"time_gpu_us", GM_FORM_REAL, "GPU \xc2\xb5s", -1},
	{"time_link_wait_us", GM_FORM_REAL, "link wait \xc2\xb5s", -1},
	{"time_disk_wait_us", GM_FORM_REAL, "disk wait \xc2\xb5s", -1},
	{"time_cpu_wait_us", GM_FORM_REAL, "CPU wait \xc2\xb5s", -1},
	{"time_token_us", GM_FORM_REAL, "token \xc2\xb5s", -1},
	{"time_us", GM_FORM_REAL, "\xc2\xb5s", -1},
	{"preload", GM_FORM_TEXT, "preload", 0},
	{"reset_per_sequence", GM_FORM_TEXT, "reset", 0},
	{"trace_hash", GM_FORM_TEXT, "trace hash", 0},
	{"settings_hash", GM_FORM_TEXT, "settings", 0},
	{"semantics_version", GM_FORM_COUNT, "semantics", 0},
	{"version", GM_FORM_TEXT, "version", 0},
	{"error", GM_FORM_TEXT, "error", 0},
	{"head_exhausted", GM_FORM_COUNT, "head exhausted", -1},
	{"substitute_weight", GM_FORM_TEXT, "substitute weight", 0},
	{"drop_weight", GM_FORM_TEXT, "drop weight", 0},
	{"n_scored", GM_FORM_COUNT, "tokens scored", 0},
	{"nll", GM_FORM_REAL, "NLL", -1},
	{"perplexity", GM_FORM_REAL, "perplexity", -1},
	{"perplexity_low", GM_FORM_REAL, "perplexity, low", 0},
	{"perplexity_high", GM_FORM_REAL, "perplexity, high", 0},
	{"perplexity_change_pct", GM_FORM_PERCENT, "perplexity change", -1},
	{"perplexity_change_pct_low", GM_FORM_PERCENT, "change, low", 0},
	{"perplexity_change_pct_high", GM_FORM_PERCENT, "change, high", 0},
	/* of per-layer, per-sequence and per-token files and of `traces stats` */
	{"layer", GM_FORM_COUNT, "layer", 0},
	{"sequence", GM_FORM_COUNT, "sequence", 0},
	{"id", GM_FORM_TEXT, "id", 0},
	{"label", GM_FORM_TEXT, "label", 0},
	{"token", GM_FORM_COUNT, "token", 0},
	{"statistic", GM_FORM_TEXT, "statistic", 0},
	{"index", GM_FORM_COUNT, "index", 0},
	{"value", GM_FORM_REAL, "value", 0},
	/* of report stats */
	{"table", GM_FORM_TEXT, "table", 0},
	{"against", GM_FORM_TEXT, "against", 0},
	{"against_hash", GM_FORM_TEXT, "against", 0},
	{"group", GM_FORM_TEXT, "policies", 0},
	{"group_cache", GM_FORM_TEXT, "cache", 0},
	{"place", GM_FORM_TEXT, "place", 0},
	{"distance", GM_FORM_TEXT, "tokens away", 0},
	{"contrast", GM_FORM_TEXT, "contrast", 0},
	{"reached", GM_FORM_TEXT, "reached", 0},
	{"equal", GM_FORM_TEXT, "equal", 0},
	{"n_policy", GM_FORM_COUNT, "number", 0},
	{"n_sequence", GM_FORM_COUNT, "texts", 0},
	{"n_token", GM_FORM_COUNT, "tokens", 0},
	{"from_token", GM_FORM_COUNT, "from token", 0},
	{"pearson", GM_FORM_REAL, "Pearson", 0},
	{"spearman", GM_FORM_REAL, "Spearman", 0},
	{"target_mass", GM_FORM_SHARE, "target", 0},
	{"lost_mass_low", GM_FORM_SHARE, "lost mass, low", 0},
	{"lost_mass_high", GM_FORM_SHARE, "lost mass, high", 0},
	{"mass_difference", GM_FORM_SHARE, "mass difference", 0},
	{"mass_difference_low", GM_FORM_SHARE, "mass difference, low", 0},
	{"mass_difference_high", GM_FORM_SHARE, "mass difference, high", 0},
	{"nll_difference", GM_FORM_REAL, "NLL difference", 0},
	{"hit_rate_open", GM_FORM_SHARE, "hits open", 0},
	{"hit_rate_closed", GM_FORM_SHARE, "closed", 0},
	{"hit_rate_error", GM_FORM_SHARE, "error", 0},
	{"substituted_rate_open", GM_FORM_SHARE, "substituted open", 0},
	{"substituted_rate_closed", GM_FORM_SHARE, "closed", 0},
	{"substituted_rate_error", GM_FORM_SHARE, "error", 0},
	{"lost_mass_open", GM_FORM_SHARE, "mass open", 0},
	{"lost_mass_closed", GM_FORM_SHARE, "closed", 0},
	{"lost_mass_error", GM_FORM_SHARE, "error", 0},
};

const struct gm_known_column *gm_known_column(const char *name)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strcmp(known[i].name, name) == 0)
			return &known[i];
	return NULL;
}

char *gm_show_number(const struct gm_known_column *column, double value, char out[GM_SHOWN_TEXT])
{
	char number[GM_SCALE_TEXT];

	switch (column ? column->form : GM_FORM_REAL) {
	case GM_FORM_SHARE:
		snprintf(out, GM_SHOWN_TEXT, "%.2f %%", 100 * value);
		break;
	case GM_FORM_PERCENT:
		snprintf(out, GM_SHOWN_TEXT, "%+.2f %%", value);
		break;
	default:
		snprintf(out, GM_SHOWN_TEXT, "%s", gm_short_number(value, 4, number));
	}
	return out;
}
