/* sim policies: the table of policies/table.h, for people and for programs. */
#include "sim/commands.h"

#include "policies/table.h"

#include <stdio.h>
#include <stdlib.h>

enum option_id { JSON = 1 };

static const struct gm_option policies_options[] = {
	{JSON, 0, "json", NULL, "print one JSON object"},
	{0, 0, NULL, NULL, NULL},
};
static const struct gm_option *const tables[] = {policies_options};

struct state {
	bool json;
};

static const struct {
	enum gm_policy_kind kind;
	const char *title, *key;
} kinds[] = {
	{GM_POLICY_EVICT, "Eviction (--evict): what leaves when room is needed", "evict"},
	{GM_POLICY_MISS, "Miss rules (--miss): what is done about an expert that is not there", "miss"},
	{GM_POLICY_ADMIT, "Admission (--admit): what else enters the cache", "admit"},
};
#define N_KIND (sizeof(kinds) / sizeof(*kinds))

static int option(int id, const char *value, void *data, struct gm_error *err)
{
	(void)id, (void)value, (void)err;
	((struct state *)data)->json = true;
	return GM_OK;
}

static void print_kind(size_t k)
{
	const struct gm_policy_info *info;
	char usage[GM_POLICY_TEXT];

	printf("%s\n", kinds[k].title);
	for (int i = 0; (info = gm_policy_info(kinds[k].kind, i)); i++) {
		printf("  %-22s %s\n", gm_policy_usage(info, usage), info->help);
		for (int p = 0; p < info->n_param; p++)
			printf("  %-22s   %s: %s\n", "", info->param[p].name, info->param[p].help);
	}
	putchar('\n');
}

static void print_presets(void)
{
	char name[64];

	printf("Presets (--policy): combinations, whose parts later options override\n");
	for (const struct gm_preset *preset = gm_preset_table; preset->name; preset++) {
		snprintf(name, sizeof(name), "%s%s", preset->name, preset->takes_layers ? ":LAYERS" : "");
		printf("  %-22s %s", name, preset->help);
		if (preset->takes_layers)
			printf("\n");
		else
			printf(" (%s + %s + %s)\n", preset->miss, preset->evict, preset->admit);
	}
}

static struct gm_json *params_json(const struct gm_policy_info *info)
{
	struct gm_json *list = gm_json_new_array();

	for (int p = 0; p < info->n_param; p++) {
		struct gm_json *param = gm_json_new_object();
		gm_json_add_string(param, "name", info->param[p].name);
		gm_json_add_string(param, "help", info->param[p].help);
		gm_json_append(list, param);
	}
	return list;
}

static struct gm_json *kind_json(size_t k)
{
	struct gm_json *list = gm_json_new_array();
	const struct gm_policy_info *info;
	char usage[GM_POLICY_TEXT];

	for (int i = 0; (info = gm_policy_info(kinds[k].kind, i)); i++) {
		struct gm_json *item = gm_json_new_object();
		gm_json_add_string(item, "name", info->name);
		gm_json_add_string(item, "usage", gm_policy_usage(info, usage));
		gm_json_add_string(item, "help", info->help);
		gm_json_add(item, "params", params_json(info));
		gm_json_append(list, item);
	}
	return list;
}

static struct gm_json *presets_json(void)
{
	struct gm_json *list = gm_json_new_array();

	for (const struct gm_preset *preset = gm_preset_table; preset->name; preset++) {
		struct gm_json *item = gm_json_new_object();
		gm_json_add_string(item, "name", preset->name);
		gm_json_add_string(item, "help", preset->help);
		if (preset->evict)
			gm_json_add_string(item, "evict", preset->evict);
		if (preset->miss)
			gm_json_add_string(item, "miss", preset->miss);
		if (preset->admit)
			gm_json_add_string(item, "admit", preset->admit);
		gm_json_add_bool(item, "takes_layers", preset->takes_layers);
		gm_json_append(list, item);
	}
	return list;
}

static int print_json(struct gm_error *err)
{
	struct gm_json *object = gm_json_new_object();

	for (size_t k = 0; k < N_KIND; k++)
		gm_json_add(object, kinds[k].key, kind_json(k));
	gm_json_add(object, "presets", presets_json());
	char *text = object ? gm_json_print(object, true) : NULL;
	gm_json_free(object);
	if (!text)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory: the policies as JSON");
	printf("%s\n", text);
	free(text);
	return GM_OK;
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	(void)n_operand, (void)operand;
	if (((struct state *)data)->json)
		return print_json(err);
	for (size_t k = 0; k < N_KIND; k++)
		print_kind(k);
	print_presets();
	return GM_OK;
}

const struct gm_command gm_sim_policies = {
	.name = "policies",
	.usage = "[--json]",
	.help = "Lists eviction policies, miss rules, admissions and presets with their arguments.",
	.example = "sim policies",
	.options = tables,
	.n_table = sizeof(tables) / sizeof(*tables),
	.min_operand = 0,
	.max_operand = 0,
	.run = run,
	.option = option,
	.state_bytes = sizeof(struct state),
};
