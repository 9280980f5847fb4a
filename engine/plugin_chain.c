/* Chains: a layer's multiplications with experts and what stands between them, over the slots and as a schedule says.
 *
 * Every row and every pick (column) of a chain is computed by itself, so a chain can be computed in blocks of some of them, each through all of
 * its steps: row by row where slots must be used twice; and in an event, of a single row or of several, first the picks whose experts are there, then
 * those that are fetched, as they arrive (docs/semantics.md, R15). */
#include "engine/plugin_private.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* --- which nodes are a chain --- */

const struct plugin_step *plugin_maker_of(const struct plugin_chain *chain, const struct ggml_tensor *tensor)
{
	for (uint32_t s = 0; s < chain->n_step; s++)
		if (chain->step[s].node == tensor || chain->step[s].node == tensor->view_src)
			return &chain->step[s];
	return NULL;
}

/* A column for each pick of each row; a view of the chain's own results must not move them. */
static bool has_picks(const struct plugin_chain *chain, const struct ggml_tensor *tensor)
{
	const struct ggml_tensor *of = tensor->view_src;

	if (tensor->ne[1] != chain->top_k || tensor->ne[2] != chain->n_row || tensor->ne[3] != 1)
		return false;
	return !of || !plugin_maker_of(chain, tensor) ||
	       (tensor->nb[1] == of->nb[1] && tensor->nb[2] == of->nb[2] &&
		tensor->view_offs + (size_t)tensor->ne[0] * tensor->nb[0] <= of->nb[1]);
}

/* One column for all picks of a row, from before the chain. */
static bool has_rows(const struct plugin_chain *chain, const struct ggml_tensor *tensor)
{
	return tensor->ne[1] == 1 && tensor->ne[2] == chain->n_row && tensor->ne[3] == 1 && !plugin_maker_of(chain, tensor);
}

static bool continues(const struct plugin_chain *chain, const struct ggml_tensor *node)
{
	const struct plugin_weight *weight = plugin_weight_of(node->src[0]);

	if (chain->n_step == PLUGIN_MAX_STEP || node->view_src || !has_picks(chain, node))
		return false;
	if (node->op == GGML_OP_GLU)
		return has_picks(chain, node->src[0]) && (!node->src[1] || has_picks(chain, node->src[1]));
	if (node->op == GGML_OP_ADD_ID)
		return has_picks(chain, node->src[0]) && node->src[2]->data == chain->ids->data;
	return node->op == GGML_OP_MUL_MAT_ID && weight && weight->plugin == chain->plugin &&
	       weight->model_layer == chain->model_layer && node->src[2]->data == chain->ids->data &&
	       (has_picks(chain, node->src[1]) || has_rows(chain, node->src[1]));
}

static void add_step(struct plugin_chain *chain, struct ggml_tensor *node)
{
	chain->step[chain->n_step++] = (struct plugin_step){
		.node = node,
		.weight = node->op == GGML_OP_MUL_MAT_ID ? plugin_weight_of(node->src[0]) : NULL,
		.away = PLUGIN_IN_PLACE,
	};
}

/* From node `first` on, a multiplication. Returns the node after its last. */
static int find_chain(struct plugin_chain *chain, struct ggml_cgraph *graph, int first)
{
	int end = first + 1;

	add_step(chain, ggml_graph_node(graph, first));
	for (int i = end; i < ggml_graph_n_nodes(graph); i++) {
		struct ggml_tensor *node = ggml_graph_node(graph, i);

		if (plugin_is_layout(node->op))
			continue;
		if (!continues(chain, node))
			break;
		add_step(chain, node);
		end = i + 1;
	}
	return end;
}

/* It has all that an expert consists of. */
static bool is_whole(const struct plugin_chain *chain)
{
	const struct plugin_weight *weight = chain->plugin->weight[chain->model_layer];
	uint32_t n_multiplied = 0, n_part = 0;

	for (uint32_t s = 0; s < chain->n_step; s++)
		n_multiplied += chain->step[s].weight != NULL;
	for (int part = 0; part < GM_PLUGIN_MAX_PART; part++)
		n_part += weight[part].tensor != NULL;
	return n_multiplied == n_part;
}

/* --- where results stay --- */

static bool overlap(const struct ggml_tensor *a, const struct ggml_tensor *b)
{
	const char *at = a->data, *bt = b->data;

	return at < bt + ggml_nbytes(b) && bt < at + ggml_nbytes(a);
}

/* A node's memory is what earlier ones have computed with or left: the scheduler gives it away once they are computed, but another block of
 * them is still to come. */
static bool is_in_the_way(const struct plugin_chain *chain, uint32_t step)
{
	const struct ggml_tensor *node = chain->step[step].node;

	for (uint32_t s = 0; s <= step; s++) {
		const struct ggml_tensor *other = chain->step[s].node;

		if (s < step && overlap(node, other))
			return true;
		for (int i = other->op == GGML_OP_MUL_MAT_ID; i < GGML_MAX_SRC && other->src[i]; i++)
			if (!plugin_maker_of(chain, other->src[i]) && overlap(node, other->src[i]))
				return true;
	}
	return false;
}

/* Before a chain is computed in several blocks. */
static bool put_away(struct plugin_chain *chain)
{
	size_t bytes = 0;

	for (uint32_t s = 0; s < chain->n_step; s++) {
		struct plugin_step *step = &chain->step[s];

		if (!is_in_the_way(chain, s))
			continue;
		step->away = bytes;
		bytes += (ggml_nbytes(step->node) + PLUGIN_ALIGNMENT - 1) / PLUGIN_ALIGNMENT * PLUGIN_ALIGNMENT;
	}
	return bytes == 0 || plugin_grow(chain->backend, &chain->backend->results, bytes);
}

char *plugin_result(const struct plugin_chain *chain, const struct plugin_step *step, ggml_backend_buffer_t *buffer)
{
	bool in_place = step->away == PLUGIN_IN_PLACE;

	*buffer = in_place ? plugin_buffer_of(step->node) : chain->backend->results;
	return in_place ? step->node->data : (char *)ggml_backend_buffer_get_base(*buffer) + step->away;
}

static void bring_back(const struct plugin_chain *chain)
{
	for (uint32_t s = 0; s < chain->n_step; s++) {
		const struct plugin_step *step = &chain->step[s];
		struct ggml_tensor *from;

		if (step->away == PLUGIN_IN_PLACE)
			continue;
		from = ggml_dup_tensor(chain->backend->context, step->node);
		from->data = plugin_result(chain, step, &from->buffer);
		ggml_backend_tensor_copy(from, step->node);
	}
	ggml_reset(chain->backend->context);
}

/* --- computing --- */

/* n blocks, one after the other. expert: whose picks they are, UINT32_MAX: several. */
static enum ggml_status compute(const struct plugin_chain *chain, const struct plugin_block *block, uint32_t n,
				uint32_t expert)
{
	struct plugin_backend *backend = chain->backend;
	struct ggml_cgraph *graph = ggml_new_graph_custom(backend->context, PLUGIN_MAX_NODE, false);
	double start = now_us(), end;
	enum ggml_status status;

	for (uint32_t b = 0; b < n; b++)
		plugin_add_block(chain, &block[b], graph);
	status = ggml_backend_graph_compute(backend->inner, graph);
	ggml_reset(backend->context);
	end = now_us();
	chain->plugin->stats.compute_us += end - start;
	gm_spans_experts(chain->plugin->spans, chain->schedule->layer, expert, start, end);
	return status;
}

/* --- as the schedule says --- */

static int check_schedule(const struct plugin_chain *chain)
{
	struct gm_plugin *plugin = chain->plugin;
	const struct gm_schedule *schedule = chain->schedule;

	if (plugin->err.code)
		return plugin->err.code;
	if (schedule && plugin->moe_layer[chain->model_layer] == schedule->layer && schedule->n_row == chain->n_row &&
	    schedule->top_k == chain->top_k)
		return GM_OK;
	return gm_fail(&plugin->err, GM_ERR_UNSUPPORTED,
		       "experts of %u rows without a decision: layer %u: the router must be "
		       "observed",
		       chain->n_row, chain->model_layer);
}

/* Where a slot may be used by many copies, nothing is computed row by row. */
static bool is_by_expert(const struct plugin_chain *chain)
{
	return chain->schedule->one_event && chain->schedule->n_copy > 0;
}

static bool send_rows(const struct plugin_chain *chain)
{
	struct plugin_backend *backend = chain->backend;
	const struct gm_schedule *schedule = chain->schedule;

	if (!plugin_grow(backend, &backend->ids, (size_t)schedule->max_row * chain->top_k * sizeof(int32_t)))
		return false;
	ggml_backend_tensor_set(plugin_ids(backend, chain->top_k, 0, chain->n_row), schedule->slot, 0,
				(size_t)chain->n_row * chain->top_k * sizeof(int32_t));
	return true;
}

/* The slot numbers of a whole schedule, sent once for all of its layer's chains. */
static enum ggml_status send_slots(const struct plugin_chain *chain)
{
	struct plugin_backend *backend = chain->backend;

	if (backend->n_schedule == chain->plugin->n_schedule)
		return GGML_STATUS_SUCCESS;
	if (is_by_expert(chain) ? !plugin_send_picks(chain) : !send_rows(chain))
		return GGML_STATUS_ALLOC_FAILED;
	ggml_reset(backend->context);
	backend->n_schedule = chain->plugin->n_schedule;
	return GGML_STATUS_SUCCESS;
}

/* Of one tensor, or of all that an expert consists of. */
static int get_part(const struct plugin_chain *chain, const struct plugin_weight *weight, bool whole, uint32_t first,
		    uint32_t n)
{
	struct gm_plugin *plugin = chain->plugin;
	const struct gm_slot_copy *copy = chain->schedule->copy;
	int status = GM_OK;

	if (plugin->copier.copy)
		return plugin->copier.copy(plugin->copier.user, chain->schedule, first, n,
					   whole ? GM_PLUGIN_MAX_PART : weight->part, &plugin->err);
	for (uint32_t c = first; c < first + n && status == GM_OK; c++) {
		double start = now_us();

		status = whole ? gm_plugin_put(plugin, chain->schedule->layer, copy[c].expert, copy[c].slot, &plugin->err)
			       : plugin_copy(weight, copy[c].expert, weight->slots, copy[c].slot);
		gm_spans_add(plugin->spans, GM_LANE_LINK, "fetch", chain->schedule->layer, copy[c].expert, start, now_us());
	}
	return status;
}

/* Copies first ... first + n - 1 of the schedule are there, as far as the chain needs them. */
static int get_copies(const struct plugin_chain *chain, uint32_t first, uint32_t n)
{
	struct gm_plugin_stats *stats = &chain->plugin->stats;
	bool whole = is_whole(chain), has_all = false;
	double start = now_us();
	int status = GM_OK;

	for (uint32_t s = 0; s < chain->n_step && status == GM_OK; s++) {
		const struct plugin_weight *weight = chain->step[s].weight;

		if (!weight)
			continue;
		if (!has_all)
			status = get_part(chain, weight, whole, first, n);
		has_all = whole;
		stats->n_copy += n;
		stats->bytes += n * weight->tensor->nb[2];
	}
	stats->copy_us += now_us() - start;
	return status;
}

/* Every part's rows, once its copies are there. */
static enum ggml_status run_parts(const struct plugin_chain *chain)
{
	const struct gm_schedule *schedule = chain->schedule;
	enum ggml_status status = GGML_STATUS_SUCCESS;
	uint32_t c = 0, first = 0;

	for (uint32_t p = 0; p < schedule->n_part && status == GGML_STATUS_SUCCESS; p++) {
		const struct plugin_block block = {.row = first, .n_row = schedule->end[p] - first, .n_pick = chain->top_k};
		uint32_t first_copy = c;

		while (c < schedule->n_copy && schedule->copy[c].row < schedule->end[p])
			c++;
		if (c > first_copy && get_copies(chain, first_copy, c - first_copy) < 0)
			return GGML_STATUS_FAILED;
		status = compute(chain, &block, 1, UINT32_MAX);
		first = schedule->end[p];
	}
	return status;
}

/* Which copy fills a pick's slot. */
static uint32_t copy_of(const struct gm_schedule *schedule, uint32_t pick)
{
	for (uint32_t c = 0; c < schedule->n_copy; c++)
		if ((int32_t)schedule->copy[c].slot == schedule->slot[pick])
			return c;
	return GM_NO_COPY;
}

/* Those picks of a single row that a copy is for, or none. */
static enum ggml_status compute_in_row(const struct plugin_chain *chain, uint32_t copy)
{
	enum ggml_status status = GGML_STATUS_SUCCESS;
	struct plugin_block block[PLUGIN_MAX_NODE / PLUGIN_MAX_STEP];
	uint32_t n = 0, expert = copy == GM_NO_COPY ? UINT32_MAX : chain->schedule->copy[copy].expert;

	for (uint32_t pick = 0; pick < chain->top_k && status == GGML_STATUS_SUCCESS; pick++) {
		if (copy_of(chain->schedule, pick) != copy)
			continue;
		if (n > 0 && block[n - 1].pick + block[n - 1].n_pick == pick) {
			block[n - 1].n_pick++;
			continue;
		}
		if (n == sizeof(block) / sizeof(*block)) {
			status = compute(chain, block, n, expert);
			n = 0;
		}
		block[n++] = (struct plugin_block){.n_row = 1, .pick = pick, .n_pick = 1};
	}
	return n > 0 && status == GGML_STATUS_SUCCESS ? compute(chain, block, n, expert) : status;
}

/* Those picks of an event that a copy is for, or none. */
static enum ggml_status compute_picks(const struct plugin_chain *chain, uint32_t copy)
{
	const struct gm_schedule *schedule = chain->schedule;
	uint32_t first = 0, end = schedule->n_ready, expert = UINT32_MAX;
	enum ggml_status status = GGML_STATUS_SUCCESS;

	if (!schedule->one_event)
		return compute_in_row(chain, copy);
	if (copy != GM_NO_COPY) {
		first = schedule->copy[copy].first_pick;
		end = first + schedule->copy[copy].n_pick;
		expert = schedule->copy[copy].expert;
	}
	for (; first < end && status == GGML_STATUS_SUCCESS; first += chain->max_pick) {
		uint32_t n = end - first < chain->max_pick ? end - first : chain->max_pick;
		const struct plugin_block block = {.is_brought = true, .first = first, .n = n};

		status = compute(chain, &block, 1, expert);
	}
	return status;
}

/* R15: hits and substitutes while the link copies, then what is fetched in the order of requests. */
static enum ggml_status run_beside(const struct plugin_chain *chain)
{
	enum ggml_status status;

	if (get_copies(chain, 0, 0) < 0) /* which begins those that need not wait */
		return GGML_STATUS_FAILED;
	status = compute_picks(chain, GM_NO_COPY);
	for (uint32_t c = 0; c < chain->schedule->n_copy && status == GGML_STATUS_SUCCESS; c++) {
		if (get_copies(chain, c, 1) < 0)
			return GGML_STATUS_FAILED;
		status = compute_picks(chain, c);
	}
	return status;
}

static enum ggml_status run_chain(struct plugin_chain *chain, bool beside)
{
	enum ggml_status status = send_slots(chain);

	if (status != GGML_STATUS_SUCCESS)
		return status;
	status = beside ? run_beside(chain) : run_parts(chain);
	bring_back(chain);
	for (uint32_t s = 0; s < chain->n_step; s++) {
		chain->plugin->stats.n_op += chain->step[s].weight != NULL;
		chain->plugin->stats.n_part += chain->step[s].weight ? chain->schedule->n_part : 0;
	}
	return status;
}

/* For results that must stay, and for picks that are brought together. */
static int get_memory(struct plugin_chain *chain)
{
	if (!put_away(chain))
		return GM_ERR_MEMORY;
	return is_by_expert(chain) ? plugin_prepare_picks(chain) : GM_OK;
}

/* The first multiplication by itself: its result may lie where the scheduler wants it. */
static void leave_alone(struct plugin_chain *chain)
{
	chain->n_step = 1;
	chain->step[0].away = PLUGIN_IN_PLACE;
	if (chain->backend->results)
		ggml_backend_buffer_free(chain->backend->results);
	chain->backend->results = NULL;
}

enum ggml_status plugin_compute_chain(struct plugin_backend *backend, struct ggml_cgraph *graph, int node, int *next)
{
	const struct ggml_tensor *first = ggml_graph_node(graph, node);
	const struct plugin_weight *weight = plugin_weight_of(first->src[0]);
	struct plugin_chain chain = {
		.backend = backend,
		.plugin = weight->plugin,
		.schedule = weight->plugin->schedule,
		.ids = first->src[2],
		.model_layer = weight->model_layer,
		.top_k = (uint32_t)first->src[2]->ne[0],
		.n_row = (uint32_t)first->src[2]->ne[1],
	};
	bool beside;
	int status;

	*next = find_chain(&chain, graph, node);
	if (check_schedule(&chain) < 0)
		return GGML_STATUS_FAILED;
	beside = is_by_expert(&chain) || (chain.n_row == 1 && chain.schedule->n_copy > 0 && chain.plugin->copier.copy &&
					  (has_picks(&chain, first->src[1]) || has_rows(&chain, first->src[1])));
	status = beside || chain.schedule->n_part > 1 ? get_memory(&chain) : GM_OK;
	if (status == GM_ERR_MEMORY) {
		leave_alone(&chain);
		*next = node + 1;
		status = get_memory(&chain);
	}
	if (status < 0)
		return status == GM_ERR_MEMORY ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
	return run_chain(&chain, beside);
}
