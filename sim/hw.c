/* What a profile means for one trace: times of a layer's work, derived from bytes where they are not given (docs/time-model.md). */
#include "sim/profile.h"

#include <math.h>
#include <stdlib.h>

/* Time to move bytes, in µs; NaN where bytes or bandwidth are not known. Bandwidth 0 is infinitely fast, whatever the bytes. */
static double move_us(double bytes, double gb_s)
{
	return gb_s == 0 ? 0.0 : bytes / (gb_s * 1e3);
}

static double given_or(double given, double derived)
{
	return isnan(given) ? derived : given;
}

static int allocate(struct gm_hw *hw, bool bytes_known, struct gm_error *err)
{
	double **const arrays[] = {&hw->dense_us, &hw->gpu_expert_us, &hw->cpu_expert_us, &hw->copy_us, &hw->read_us};

	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		if (!(*arrays[i] = gm_alloc(hw->n_layer, sizeof(double), err)))
			return GM_ERR_MEMORY;
	if (bytes_known && !(hw->expert_bytes = gm_alloc(hw->n_layer, sizeof(uint64_t), err)))
		return GM_ERR_MEMORY;
	return GM_OK;
}

static void derive_layer(const struct gm_profile *p, const struct gm_model *model, struct gm_hw *hw, uint32_t layer)
{
	double bytes = hw->expert_bytes ? (double)hw->expert_bytes[layer] : (double)NAN;
	double dense = model->dense_bytes ? (double)model->dense_bytes[layer] : (double)NAN;

	hw->dense_us[layer] = given_or(p->dense_us, p->layer_overhead_us + move_us(dense, p->gpu_mem_gb_s));
	hw->gpu_expert_us[layer] = given_or(p->gpu_expert_us, p->gpu_expert_overhead_us + move_us(bytes, p->gpu_mem_gb_s));
	hw->cpu_expert_us[layer] = given_or(p->cpu_expert_us, move_us(bytes, p->cpu_mem_gb_s));
	hw->copy_us[layer] = p->link_latency_us + move_us(bytes, p->link_gb_s);
	hw->read_us[layer] = hw->disk ? p->disk_latency_us + move_us(bytes, p->disk_gb_s) : 0.0;
}

int gm_hw_derive(const struct gm_profile *p, const struct gm_model *model, struct gm_hw *hw, struct gm_error *err)
{
	bool given = !isnan(p->expert_bytes);

	*hw = (struct gm_hw){.n_layer = model->n_layer, .instant = p->instant};
	hw->disk = p->host_expert_bytes > 0; /* false for NaN */
	hw->host_bytes = hw->disk ? (uint64_t)p->host_expert_bytes : 0;
	if (allocate(hw, given || model->expert_bytes, err) < 0) {
		gm_hw_free(hw);
		return GM_ERR_MEMORY;
	}
	for (uint32_t l = 0; hw->expert_bytes && l < hw->n_layer; l++)
		hw->expert_bytes[l] = given ? (uint64_t)p->expert_bytes : model->expert_bytes[l];
	if (p->instant)
		return GM_OK; /* all times are 0 by gm_alloc */
	hw->cpu_roundtrip_us = p->cpu_roundtrip_us;
	hw->token_us = p->token_us;
	for (uint32_t l = 0; l < hw->n_layer; l++)
		derive_layer(p, model, hw, l);
	return GM_OK;
}

void gm_hw_free(struct gm_hw *hw)
{
	if (!hw)
		return;
	free(hw->dense_us);
	free(hw->gpu_expert_us);
	free(hw->cpu_expert_us);
	free(hw->copy_us);
	free(hw->read_us);
	free(hw->expert_bytes);
	*hw = (struct gm_hw){0};
}

static bool has_nan(const double *times, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (isnan(times[i]))
			return true;
	return false;
}

/* A time of a layer's work and what it is made of. */
struct need {
	const double *times;        /* [n_layer] */
	const char *direct;         /* the profile's key that gives the time itself, or NULL */
	const char *key[2];         /* the keys it is derived from */
	double value[2];            /* their values */
	const char *bytes, *option; /* what the trace must know, and the import option that says it */
};

static int no_key(const struct gm_profile *p, const char *key, const char *direct, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_USAGE, "time not known: hardware profile %s has no %s: give it in the profile%s%s",
		       p->name, key, direct ? ", or " : "", direct ? direct : "");
}

static int check_need(const struct need *need, uint32_t n_layer, const struct gm_profile *p, struct gm_error *err)
{
	if (!has_nan(need->times, n_layer))
		return GM_OK;
	for (int i = 0; i < 2; i++)
		if (need->key[i] && isnan(need->value[i]))
			return no_key(p, need->key[i], need->direct, err);
	return gm_fail(err, GM_ERR_USAGE,
		       "time not known: the trace has no %s: give %s in a hardware profile (--hw FILE), or import the "
		       "trace with %s",
		       need->bytes, need->direct ? need->direct : "expert_bytes", need->option);
}

int gm_hw_check(const struct gm_hw *hw, const struct gm_profile *p, bool needs_cpu, struct gm_error *err)
{
	static const char expert[] = "expert bytes", import_expert[] = "--expert-bytes";
	const struct need needs[] = {
		{hw->dense_us,
		 "dense_us",
		 {"layer_overhead_us", "gpu_mem_gb_s"},
		 {p->layer_overhead_us, p->gpu_mem_gb_s},
		 "dense bytes",
		 "--dense-bytes"},
		{hw->gpu_expert_us,
		 "gpu_expert_us",
		 {"gpu_expert_overhead_us", "gpu_mem_gb_s"},
		 {p->gpu_expert_overhead_us, p->gpu_mem_gb_s},
		 expert,
		 import_expert},
		{hw->copy_us,
		 NULL,
		 {"link_latency_us", "link_gb_s"},
		 {p->link_latency_us, p->link_gb_s},
		 expert,
		 import_expert},
		{hw->read_us, NULL, {NULL, NULL}, {0, 0}, expert, import_expert},
		{hw->cpu_expert_us, "cpu_expert_us", {"cpu_mem_gb_s", NULL}, {p->cpu_mem_gb_s, 0}, expert, import_expert},
	};
	const size_t n_need = sizeof(needs) / sizeof(*needs) - !needs_cpu;

	if (hw->instant)
		return GM_OK;
	for (size_t i = 0; i < n_need; i++)
		GM_TRY(check_need(&needs[i], hw->n_layer, p, err));
	if (isnan(hw->token_us))
		return no_key(p, "token_us", NULL, err);
	if (needs_cpu && isnan(hw->cpu_roundtrip_us))
		return no_key(p, "cpu_roundtrip_us", NULL, err);
	for (uint32_t l = 0; hw->disk && l < hw->n_layer; l++)
		if (!hw->expert_bytes || hw->expert_bytes[l] > hw->host_bytes)
			return gm_fail(err, GM_ERR_USAGE, "no room in host RAM: hardware profile %s, host_expert_bytes: %s",
				       p->name,
				       hw->expert_bytes ? "give at least the bytes of one expert"
							: "the trace has no expert bytes: give expert_bytes too");
	return GM_OK;
}
