/* Blocks of a chain, as graphs for the inner device.
 *
 * A block is a rectangle of rows and picks, computed where the scheduler wants the results: each tensor's share of it is a view. Or it is any picks
 * of an event of several rows, those of one expert for example: then a column of each source is brought together for each pick, the chain is
 * computed over these columns, and its results are put where they belong. Each column is computed by itself, so both give the same bits. */
#include "engine/plugin_private.h"

#include <string.h>

/* --- rectangles --- */

/* A block's share of a tensor. */
static struct ggml_tensor *share(const struct plugin_chain *chain, const struct ggml_tensor *of,
				 const struct plugin_block *block)
{
	const struct plugin_step *maker = plugin_maker_of(chain, of);
	bool by_pick = of->ne[1] == chain->top_k; /* or one for all picks of a row */
	struct ggml_tensor *its = ggml_new_tensor_3d(chain->backend->context, of->type, of->ne[0],
						     by_pick ? block->n_pick : of->ne[1], block->n_row);

	memcpy(its->nb, of->nb, sizeof(its->nb));
	its->data = of->data;
	its->buffer = plugin_buffer_of(of);
	if (maker)
		its->data = plugin_result(chain, maker, &its->buffer) + ((char *)of->data - (char *)maker->node->data);
	its->data = (char *)its->data + block->row * of->nb[2] + (by_pick ? block->pick * of->nb[1] : 0);
	return its;
}

static struct ggml_tensor *share_ids(const struct plugin_chain *chain, const struct plugin_block *block)
{
	struct ggml_tensor *ids = plugin_ids(chain->backend, chain->top_k, block->row, block->n_row);

	ids->ne[0] = block->n_pick;
	ids->data = (int32_t *)ids->data + block->pick;
	return ids;
}

/* A node's own ids: experts, not slots. */
static struct ggml_tensor *share_experts(const struct plugin_chain *chain, struct ggml_tensor *of,
					 const struct plugin_block *block)
{
	struct ggml_tensor *ids = ggml_view_2d(chain->backend->context, of, block->n_pick, block->n_row, of->nb[1],
					       block->row * of->nb[1] + block->pick * of->nb[0]);

	ids->buffer = plugin_buffer_of(of);
	return ids;
}

static struct ggml_tensor *share_step(const struct plugin_chain *chain, const struct plugin_step *step,
				      const struct plugin_block *block)
{
	struct ggml_tensor *its = share(chain, step->node, block);

	its->op = step->node->op;
	its->flags = step->node->flags;
	memcpy(its->op_params, step->node->op_params, sizeof(its->op_params));
	if (step->weight) {
		its->src[0] = step->weight->slots->tensor;
		its->src[1] = share(chain, step->node->src[1], block);
		its->src[2] = share_ids(chain, block);
		return its;
	}
	its->src[0] = share(chain, step->node->src[0], block);
	if (step->node->op == GGML_OP_ADD_ID) {
		its->src[1] = step->node->src[1];
		its->src[2] = share_experts(chain, step->node->src[2], block);
	} else if (step->node->src[1]) {
		its->src[1] = share(chain, step->node->src[1], block);
	}
	return its;
}

/* --- picks that are brought together --- */

/* What stands of all of a schedule's picks, in its order, in the buffer `picks`. */
enum pick_array {
	PICK_TO,     /* int64_t: its place, row * top_k + i, for what is put there */
	PICK_PLACE,  /* int32_t: the same, for what comes from there */
	PICK_ROW,    /* int32_t */
	PICK_SLOT,   /* int32_t */
	PICK_EXPERT, /* int32_t */
};

struct gather {
	const struct plugin_chain *chain;
	const struct plugin_block *block;
	struct ggml_cgraph *graph;
	size_t used;                       /* bytes of the buffer `columns` */
	char *source[2 * PLUGIN_MAX_STEP]; /* the sources' columns */
	char *result[PLUGIN_MAX_STEP];     /* the steps' */
};

static size_t pick_offset(uint32_t n_pick, enum pick_array which)
{
	return which == PICK_TO ? 0 : n_pick * (sizeof(int64_t) + (which - 1) * sizeof(int32_t));
}

static size_t pick_bytes(uint32_t n_pick)
{
	return pick_offset(n_pick, PICK_EXPERT + 1);
}

bool plugin_send_picks(const struct plugin_chain *chain)
{
	struct plugin_backend *backend = chain->backend;
	const struct gm_schedule *schedule = chain->schedule;
	uint32_t n = chain->n_row * chain->top_k;
	int32_t *place, *row, *slot, *expert;
	struct ggml_tensor *all;
	int64_t *to;

	if (!plugin_grow(backend, &backend->picks, pick_bytes(schedule->max_row * chain->top_k)) ||
	    !plugin_grow_host(backend, pick_bytes(n)))
		return false;
	to = (void *)backend->host;
	place = (void *)(backend->host + pick_offset(n, PICK_PLACE));
	row = place + n;
	slot = row + n;
	expert = slot + n;
	for (uint32_t p = 0; p < n; p++) {
		to[p] = place[p] = (int32_t)schedule->pick[p];
		row[p] = place[p] / (int32_t)chain->top_k;
		slot[p] = schedule->slot[place[p]];
		expert[p] = schedule->expert[place[p]];
	}
	all = ggml_new_tensor_1d(backend->context, GGML_TYPE_I8, (int64_t)pick_bytes(n));
	all->data = ggml_backend_buffer_get_base(backend->picks);
	all->buffer = backend->picks;
	ggml_backend_tensor_set(all, backend->host, 0, pick_bytes(n));
	return true;
}

/* The block's share of one of these. */
static struct ggml_tensor *picks(const struct gather *g, enum pick_array which)
{
	struct plugin_backend *backend = g->chain->backend;
	enum ggml_type type = which == PICK_TO ? GGML_TYPE_I64 : GGML_TYPE_I32;
	struct ggml_tensor *its = ggml_new_tensor_1d(backend->context, type, g->block->n);

	its->data = (char *)ggml_backend_buffer_get_base(backend->picks) +
		    pick_offset(g->chain->n_row * g->chain->top_k, which) + g->block->first * ggml_type_size(type);
	its->buffer = backend->picks;
	return its;
}

/* As a multiplication wants them: rows of one pick. */
static struct ggml_tensor *picks_by_row(const struct gather *g, enum pick_array which)
{
	struct ggml_tensor *its = picks(g, which);

	its->ne[0] = 1;
	its->ne[1] = g->block->n;
	its->nb[1] = its->nb[0];
	its->nb[2] = its->nb[3] = its->nb[0] * g->block->n;
	return its;
}

static size_t column_bytes(const struct ggml_tensor *of)
{
	return ggml_row_size(of->type, of->ne[0]);
}

static size_t columns_bytes(const struct ggml_tensor *of, uint32_t n)
{
	return (column_bytes(of) * n + PLUGIN_ALIGNMENT - 1) / PLUGIN_ALIGNMENT * PLUGIN_ALIGNMENT;
}

/* Memory for a column of a tensor for each pick. */
static char *take_columns(struct gather *g, const struct ggml_tensor *of)
{
	char *at = (char *)ggml_backend_buffer_get_base(g->chain->backend->columns) + g->used;

	g->used += columns_bytes(of, g->block->n);
	return at;
}

/* n columns of a tensor, in rows of one, or all of them in one row. */
static struct ggml_tensor *columns(const struct gather *g, const struct ggml_tensor *of, char *data, size_t stride,
				   bool in_one_row)
{
	struct plugin_backend *backend = g->chain->backend;
	struct ggml_tensor *its = ggml_new_tensor_3d(backend->context, of->type, of->ne[0], in_one_row ? g->block->n : 1,
						     in_one_row ? 1 : g->block->n);

	its->data = data;
	its->buffer = backend->columns;
	its->nb[1] = stride;
	its->nb[2] = in_one_row ? stride * g->block->n : stride;
	its->nb[3] = stride * g->block->n;
	return its;
}

static bool is_by_pick(const struct plugin_chain *chain, const struct ggml_tensor *of)
{
	return of->ne[1] > 1 && of->ne[1] == chain->top_k;
}

/* All columns of a tensor that has one for each pick, or row, one after the other. */
static struct ggml_tensor *all_columns(const struct plugin_chain *chain, const struct ggml_tensor *of, bool by_pick,
				       char *data, ggml_backend_buffer_t buffer)
{
	int64_t n = by_pick ? (int64_t)chain->top_k * chain->n_row : chain->n_row;
	struct ggml_tensor *its = ggml_new_tensor_2d(chain->backend->context, of->type, of->ne[0], n);

	its->data = data;
	its->buffer = buffer;
	its->nb[0] = of->nb[0];
	its->nb[1] = by_pick ? of->nb[1] : of->nb[2];
	its->nb[2] = its->nb[3] = its->nb[1] * (size_t)n;
	return its;
}

static void bring(struct gather *g, uint32_t i)
{
	const struct plugin_chain *chain = g->chain;
	const struct ggml_tensor *of = chain->source[i];
	bool by_pick = is_by_pick(chain, of);
	struct ggml_tensor *node =
		ggml_get_rows(chain->backend->context, all_columns(chain, of, by_pick, of->data, plugin_buffer_of(of)),
			      picks(g, by_pick ? PICK_PLACE : PICK_ROW));

	node->data = g->source[i] = take_columns(g, of);
	node->buffer = chain->backend->columns;
	node->flags = chain->step[0].node->flags;
	ggml_graph_add_node(g->graph, node);
}

/* The columns of what a step is computed from. */
static struct ggml_tensor *input(const struct gather *g, const struct ggml_tensor *of, bool in_one_row)
{
	const struct plugin_step *maker = plugin_maker_of(g->chain, of);
	uint32_t i = 0;

	if (maker) /* a view of its result stays within a column */
		return columns(g, of, g->result[maker - g->chain->step] + ((char *)of->data - (char *)maker->node->data),
			       column_bytes(maker->node), in_one_row);
	while (g->chain->source[i] != of)
		i++;
	return columns(g, of, g->source[i], column_bytes(of), in_one_row);
}

static void compute_columns(struct gather *g, uint32_t s)
{
	const struct plugin_step *step = &g->chain->step[s];
	const struct ggml_tensor *node = step->node;
	bool in_one_row = node->op == GGML_OP_GLU; /* which wants whole rows one after the other */
	struct ggml_tensor *its;

	g->result[s] = take_columns(g, node);
	its = columns(g, node, g->result[s], column_bytes(node), in_one_row);
	its->op = node->op;
	its->flags = node->flags;
	memcpy(its->op_params, node->op_params, sizeof(its->op_params));
	its->src[0] = step->weight ? step->weight->slots->tensor : input(g, node->src[0], in_one_row);
	if (step->weight)
		its->src[1] = input(g, node->src[1], false);
	else if (node->op == GGML_OP_ADD_ID)
		its->src[1] = node->src[1];
	else if (node->src[1])
		its->src[1] = input(g, node->src[1], in_one_row);
	if (node->op != GGML_OP_GLU)
		its->src[2] = picks_by_row(g, step->weight ? PICK_SLOT : PICK_EXPERT);
	ggml_graph_add_node(g->graph, its);
}

static void put_columns(const struct gather *g, uint32_t s)
{
	const struct plugin_chain *chain = g->chain;
	const struct ggml_tensor *node = chain->step[s].node;
	ggml_backend_buffer_t buffer;
	char *result = plugin_result(chain, &chain->step[s], &buffer);
	struct ggml_tensor *to = all_columns(chain, node, true, result, buffer);
	struct ggml_tensor *from = columns(g, node, g->result[s], column_bytes(node), true);
	struct ggml_tensor *put = ggml_set_rows(chain->backend->context, to, from, picks(g, PICK_TO));

	put->buffer = buffer;
	put->flags = node->flags;
	ggml_graph_add_node(g->graph, put);
}

static void add_brought(const struct plugin_chain *chain, const struct plugin_block *block, struct ggml_cgraph *graph)
{
	struct gather g = {.chain = chain, .block = block, .graph = graph};

	for (uint32_t i = 0; i < chain->n_source; i++)
		bring(&g, i);
	for (uint32_t s = 0; s < chain->n_step; s++) {
		compute_columns(&g, s);
		put_columns(&g, s);
	}
}

void plugin_add_block(const struct plugin_chain *chain, const struct plugin_block *block, struct ggml_cgraph *graph)
{
	if (block->is_brought) {
		add_brought(chain, block, graph);
		return;
	}
	for (uint32_t s = 0; s < chain->n_step; s++)
		ggml_graph_add_node(graph, share_step(chain, &chain->step[s], block));
}

/* --- before that --- */

/* One column for each pick, or for each row, at equal distances. */
static bool can_be_brought(const struct plugin_chain *chain, const struct ggml_tensor *of)
{
	if (of->type != GGML_TYPE_F32 || of->ne[2] != chain->n_row || of->ne[3] != 1)
		return false;
	return of->ne[1] == 1 || (is_by_pick(chain, of) && of->nb[2] == chain->top_k * of->nb[1]);
}

static bool add_source(struct plugin_chain *chain, const struct ggml_tensor *of)
{
	if (plugin_maker_of(chain, of))
		return true;
	for (uint32_t i = 0; i < chain->n_source; i++)
		if (chain->source[i] == of)
			return true;
	chain->source[chain->n_source++] = of;
	return can_be_brought(chain, of);
}

static bool find_sources(struct plugin_chain *chain)
{
	bool good = true;

	chain->n_source = 0;
	for (uint32_t s = 0; s < chain->n_step; s++) {
		const struct ggml_tensor *node = chain->step[s].node;

		good &= can_be_brought(chain, node);
		if (node->op != GGML_OP_MUL_MAT_ID)
			good &= add_source(chain, node->src[0]);
		if (node->op == GGML_OP_MUL_MAT_ID || (node->op == GGML_OP_GLU && node->src[1]))
			good &= add_source(chain, node->src[1]);
	}
	return good;
}

static size_t all_bytes(const struct plugin_chain *chain, uint32_t n)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < chain->n_source; i++)
		bytes += columns_bytes(chain->source[i], n);
	for (uint32_t s = 0; s < chain->n_step; s++)
		bytes += columns_bytes(chain->step[s].node, n);
	return bytes;
}

int plugin_prepare_picks(struct plugin_chain *chain)
{
	if (!find_sources(chain))
		return gm_fail(&chain->plugin->err, GM_ERR_UNSUPPORTED,
			       "experts' inputs that cannot be brought together: layer %u: --prefill token",
			       chain->model_layer);
	/* an expert has no more picks than there are rows */
	for (chain->max_pick = chain->n_row; chain->max_pick > 0; chain->max_pick /= 2)
		if (plugin_grow(chain->backend, &chain->backend->columns, all_bytes(chain, chain->max_pick)))
			return GM_OK;
	return GM_ERR_MEMORY;
}
