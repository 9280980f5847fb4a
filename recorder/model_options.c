#include "recorder/model_options.h"

#include "base/number.h"
#include "traces/model.h"

#include <stdio.h>
#include <string.h>

const struct gm_option gm_model_options[] = {
	{GM_OPTION_CTX, 'c', "ctx", "N",
	 "tokens of a sequence (default: the model's, at most 4096);\na longer text becomes several sequences"},
	{GM_OPTION_UBATCH, 0, "ubatch", "N", "tokens of a forward pass (default 512)"},
	{GM_OPTION_THREADS, 't', "threads", "N", "CPU threads (default: one a core)"},
	{GM_OPTION_NGL, 0, "n-gpu-layers", "N", "layers on the GPU, also -ngl (default: all)"},
	{GM_OPTION_CPU_MOE, 0, "cpu-moe", NULL, "keep all experts in host memory"},
	{GM_OPTION_N_CPU_MOE, 0, "n-cpu-moe", "N", "keep those of the first N layers there"},
	{GM_OPTION_OVERRIDE, 0, "override-tensor", "RULES", "REGEX=BUFFER,...: where tensors lie, also -ot"},
	{GM_OPTION_FLASH, 0, "flash-attention", "auto|on|off",
	 "auto: llama.cpp's choice on a GPU, off on the CPU, where it makes\n"
	 "logits depend on the size of the pass"},
	{GM_OPTION_NO_REPACK, 0, "no-repack", NULL, "plain weights on the CPU: slower, bit-equal to other backends'"},
	{0, 0, NULL, NULL, NULL},
};

bool gm_model_takes(int option_id)
{
	return option_id >= GM_OPTION_CTX && option_id <= GM_OPTION_NO_REPACK;
}

static int take_flash(struct gm_hook_options *options, const char *value, struct gm_error *err)
{
	static const char *const names[] = {[GM_FLASH_AUTO] = "auto", [GM_FLASH_OFF] = "off", [GM_FLASH_ON] = "on"};

	for (int i = GM_FLASH_AUTO; i <= GM_FLASH_ON; i++)
		if (strcmp(value, names[i]) == 0) {
			options->flash = (enum gm_hook_flash)i;
			return GM_OK;
		}
	return gm_fail(err, GM_ERR_USAGE, "unknown value: --flash-attention %.40s: auto, on or off", value);
}

int gm_model_option(struct gm_hook_options *options, int option_id, const char *value, struct gm_error *err)
{
	uint32_t layers;

	switch (option_id) {
	case GM_OPTION_CTX:
		return gm_parse_u32(value, "--ctx", 1, INT32_MAX / 2, &options->n_ctx, err);
	case GM_OPTION_UBATCH:
		return gm_parse_u32(value, "--ubatch", 1, 16384, &options->n_ubatch, err);
	case GM_OPTION_THREADS:
		return gm_parse_u32(value, "--threads", 1, 1024, &options->n_thread, err);
	case GM_OPTION_NGL:
		GM_TRY(gm_parse_u32(value, "--n-gpu-layers", 0, INT32_MAX, &layers, err));
		options->n_gpu_layers = (int)layers;
		return GM_OK;
	case GM_OPTION_CPU_MOE:
		options->cpu_moe = true;
		return GM_OK;
	case GM_OPTION_N_CPU_MOE:
		return gm_parse_u32(value, "--n-cpu-moe", 0, GM_MAX_LAYER, &options->n_cpu_moe, err);
	case GM_OPTION_OVERRIDE:
		options->override_tensor = value;
		return GM_OK;
	case GM_OPTION_FLASH:
		return take_flash(options, value, err);
	default: /* GM_OPTION_NO_REPACK */
		options->extra_bufts = false;
		return GM_OK;
	}
}

static void print_log(void *user, enum gm_hook_log level, const char *text)
{
	(void)user, (void)level;
	fputs(text, stderr);
}

void gm_model_set_verbose(struct gm_hook_options *options, bool verbose)
{
	options->log = verbose ? print_log : NULL;
	options->log_level = GM_HOOK_LOG_INFO;
}

void gm_model_short_names(int argc, char **argv)
{
	static char n_gpu_layers[] = "--n-gpu-layers", override[] = "--override-tensor";

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "-ngl") == 0)
			argv[i] = n_gpu_layers;
		else if (strcmp(argv[i], "-ot") == 0)
			argv[i] = override;
	}
}
