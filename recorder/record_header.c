/* The header of a recorded trace (see record_header.h). */
#include "recorder/record_header.h"

#include "traces/commands.h"

#include <stdlib.h>
#include <string.h>

static void keep_chosen(struct gm_record_layers *layers)
{
	struct gm_model *m = &layers->model;

	for (uint32_t i = 0; i < layers->n_all; i++) {
		uint32_t to = layers->place[i];

		if (to == UINT32_MAX || to == i)
			continue;
		m->expert_bytes[to] = m->expert_bytes[i];
		m->dense_bytes[to] = m->dense_bytes[i];
		if (m->bias)
			memcpy(m->bias + (size_t)to * m->n_expert, m->bias + (size_t)i * m->n_expert,
			       m->n_expert * sizeof(float));
	}
}

int gm_record_layers_choose(struct gm_record_layers *layers, const struct gm_model *model, const char *list,
			    struct gm_error *err)
{
	bool *chosen;
	int status = 0;

	memset(layers, 0, sizeof(*layers));
	layers->n_all = model->n_layer;
	chosen = gm_alloc(model->n_layer, sizeof(*chosen), err);
	layers->place = gm_alloc(model->n_layer, sizeof(*layers->place), err);
	if (!chosen || !layers->place) {
		status = GM_ERR_MEMORY;
		goto out;
	}
	if (list)
		GM_TRY_OUT(gm_parse_index_list(list, "--layers", model->n_layer, chosen, err));
	else
		memset(chosen, 1, model->n_layer);
	GM_TRY_OUT(gm_model_copy(&layers->model, model, err));
	layers->model.n_layer = 0;
	for (uint32_t i = 0; i < model->n_layer; i++)
		layers->place[i] = chosen[i] ? layers->model.n_layer++ : UINT32_MAX;
	keep_chosen(layers);
out:
	free(chosen);
	if (status < 0)
		gm_record_layers_free(layers);
	return status;
}

void gm_record_layers_free(struct gm_record_layers *layers)
{
	gm_model_free(&layers->model);
	free(layers->place);
	memset(layers, 0, sizeof(*layers));
}

/* Lines of gm_hook_describe_library as a list. */
static struct gm_json *library_lines(void)
{
	struct gm_json *lines = gm_json_new_array();
	char text[4096], *line = text, *end;

	gm_hook_describe_library(text, sizeof(text), true);
	for (; (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		gm_json_append_string(lines, line);
	}
	return lines;
}

static struct gm_json *model_layers(const struct gm_hook_info *info, const struct gm_record_layers *layers)
{
	struct gm_json *numbers = gm_json_new_array();

	for (uint32_t i = 0; i < layers->n_all; i++)
		if (layers->place[i] != UINT32_MAX)
			gm_json_append_number(numbers, info->model_layer[i]);
	return numbers;
}

struct gm_json *gm_record_metadata(const struct gm_hook *hook, const struct gm_record_options *options,
				   const struct gm_record_layers *layers, struct gm_error *err)
{
	const struct gm_hook_info *info = gm_hook_info(hook);
	struct gm_json *m = gm_json_new_object();
	bool ok = gm_json_add_string(m, "architecture", info->architecture) &&
		  gm_json_add_string(m, "description", info->description) &&
		  gm_json_add_string(m, "expert_type", info->expert_type) &&
		  gm_json_add_uint(m, "n_model_layer", info->n_model_layer) &&
		  gm_json_add(m, "model_layer", model_layers(info, layers)) && gm_json_add(m, "library", library_lines()) &&
		  gm_json_add_string(m, "mode", options->generate ? "generate" : "score") &&
		  gm_json_add_uint(m, "n_ctx", info->n_ctx) && gm_json_add_uint(m, "n_ubatch", info->n_ubatch) &&
		  gm_json_add_uint(m, "n_thread", info->n_thread) && gm_json_add_bool(m, "flash_attention", info->flash) &&
		  gm_json_add_bool(m, "gpu", info->uses_gpu);

	if (ok && options->generate)
		ok = gm_json_add_number(m, "temperature", options->temperature) &&
		     gm_json_add_uint(m, "seed", options->seed);
	if (ok)
		return m;
	gm_json_free(m);
	gm_fail(err, GM_ERR_MEMORY, "out of memory: header");
	return NULL;
}
