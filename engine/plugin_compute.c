/* The scheduler's graphs, node by node; multiplications with experts while there are no slots. (With slots: plugin_chain.c.) */
#include "engine/plugin_private.h"

#include <stdlib.h>
#include <string.h>

/* A multiplication: dst [n_out][top_k][n] = the rows' experts times x [n_in][1 or top_k][n]. */
struct operation {
	struct plugin_backend *backend;
	struct plugin_weight *weight;
	struct ggml_tensor *dst;
	const struct ggml_tensor *x, *ids;
	uint32_t top_k, n_row;
};

/* --- a context's inner backend --- */

int plugin_backend_open(struct plugin_backend *backend, ggml_backend_dev_t inner)
{
	const struct ggml_init_params params = {
		/* a node has at most three sources */
		.mem_size = 4 * (size_t)PLUGIN_MAX_NODE * ggml_tensor_overhead() +
			    ggml_graph_overhead_custom(PLUGIN_MAX_NODE, false),
		.no_alloc = true,
	};

	*backend = (struct plugin_backend){.inner = ggml_backend_dev_init(inner, NULL), .context = ggml_init(params)};
	return backend->inner && backend->context ? GM_OK : GM_ERR_MEMORY;
}

void plugin_backend_close(struct plugin_backend *backend)
{
	if (backend->ids)
		ggml_backend_buffer_free(backend->ids);
	if (backend->results)
		ggml_backend_buffer_free(backend->results);
	if (backend->picks)
		ggml_backend_buffer_free(backend->picks);
	if (backend->columns)
		ggml_backend_buffer_free(backend->columns);
	if (backend->context)
		ggml_free(backend->context);
	if (backend->inner)
		ggml_backend_free(backend->inner);
	free(backend->host);
}

/* A node of the scheduler's graph: what it is computed from is there. */
static enum ggml_status compute_node(struct plugin_backend *backend, struct ggml_tensor *node)
{
	struct ggml_cgraph *graph = ggml_new_graph_custom(backend->context, PLUGIN_MAX_NODE, false);

	ggml_graph_add_node(graph, node);
	return ggml_backend_graph_compute(backend->inner, graph);
}

/* --- memory on the inner device --- */

bool plugin_grow(const struct plugin_backend *backend, ggml_backend_buffer_t *buffer, size_t bytes)
{
	ggml_backend_buffer_type_t type = ggml_backend_get_default_buffer_type(backend->inner);

	if (*buffer && ggml_backend_buffer_get_size(*buffer) >= bytes)
		return true;
	if (*buffer)
		ggml_backend_buffer_free(*buffer);
	*buffer = ggml_backend_buft_alloc_buffer(type, bytes);
	return *buffer != NULL;
}

bool plugin_grow_host(struct plugin_backend *backend, size_t bytes)
{
	char *grown;

	if (backend->host_bytes >= bytes)
		return true;
	grown = realloc(backend->host, bytes);
	if (!grown)
		return false;
	backend->host = grown;
	backend->host_bytes = bytes;
	return true;
}

struct ggml_tensor *plugin_ids(const struct plugin_backend *backend, uint32_t top_k, uint32_t first, uint32_t n)
{
	struct ggml_tensor *ids = ggml_new_tensor_2d(backend->context, GGML_TYPE_I32, top_k, n);

	ids->buffer = backend->ids;
	ids->data = (char *)ggml_backend_buffer_get_base(backend->ids) + (size_t)first * top_k * sizeof(int32_t);
	return ids;
}

/* --- without slots --- */

int plugin_copy(const struct plugin_weight *weight, uint32_t expert, const struct plugin_slots *slots, uint32_t slot)
{
	size_t bytes = weight->tensor->nb[2];
	struct plugin_expert held;

	GM_TRY(plugin_hold(weight->plugin, weight->model_layer, expert, &held, &weight->plugin->err));
	ggml_backend_tensor_set(slots->tensor, held.from[weight->part], slot * bytes, bytes);
	plugin_let_go(weight->plugin, &held);
	return GM_OK;
}

/* A row of a tensor whose third dimension they are. */
static void place_row(struct ggml_tensor *its, const struct ggml_tensor *of, uint32_t row)
{
	memcpy(its->nb, of->nb, sizeof(its->nb));
	its->data = (char *)of->data + row * of->nb[2];
	its->buffer = of->view_src ? of->view_src->buffer : of->buffer;
}

/* With experts in slots 0 ... top_k - 1. */
static enum ggml_status multiply(const struct operation *op, const struct plugin_slots *slots, uint32_t row)
{
	struct plugin_backend *backend = op->backend;
	struct ggml_tensor *x = ggml_new_tensor_3d(backend->context, op->x->type, op->x->ne[0], op->x->ne[1], 1);
	struct ggml_tensor *node;

	place_row(x, op->x, row);
	node = ggml_mul_mat_id(backend->context, slots->tensor, x, plugin_ids(backend, op->top_k, 0, 1));
	place_row(node, op->dst, row);
	node->flags = op->dst->flags;
	return compute_node(backend, node);
}

static enum ggml_status read_ids(struct operation *op)
{
	struct plugin_backend *backend = op->backend;
	size_t bytes = (op->n_row - 1) * op->ids->nb[1] + op->top_k * sizeof(int32_t);

	if (!plugin_grow_host(backend, bytes))
		return GGML_STATUS_ALLOC_FAILED;
	ggml_backend_tensor_get(op->ids, backend->host, 0, bytes);
	return GGML_STATUS_SUCCESS;
}

static enum ggml_status run_row(struct operation *op, const struct plugin_slots *slots, uint32_t row)
{
	const int32_t *expert = (const int32_t *)(const void *)(op->backend->host + row * op->ids->nb[1]);
	enum ggml_status status;

	for (uint32_t i = 0; i < op->top_k; i++)
		if (expert[i] < 0 || expert[i] >= op->weight->tensor->ne[2] ||
		    plugin_copy(op->weight, (uint32_t)expert[i], slots, i) < 0)
			return GGML_STATUS_FAILED;
	status = multiply(op, slots, row);
	ggml_reset(op->backend->context);
	return status;
}

/* The row's experts are copied to as many slots, one row after the other. */
static enum ggml_status run_rows(struct operation *op)
{
	struct plugin_backend *backend = op->backend;
	struct plugin_slots slots = {0};
	enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
	struct ggml_tensor *ids;

	backend->n_schedule = 0; /* others' ids come into the buffer */
	if (plugin_slots_make(&slots, ggml_backend_get_device(backend->inner), op->weight->tensor, op->top_k, NULL) < 0 ||
	    !plugin_grow(backend, &backend->ids, op->top_k * sizeof(int32_t)))
		goto out;
	ids = plugin_ids(backend, op->top_k, 0, 1);
	for (int32_t slot = 0; slot < (int32_t)op->top_k; slot++)
		ggml_backend_tensor_set(ids, &slot, (size_t)slot * sizeof(slot), sizeof(slot));
	ggml_reset(backend->context);
	status = read_ids(op);
	for (uint32_t row = 0; row < op->n_row && status == GGML_STATUS_SUCCESS; row++)
		status = run_row(op, &slots, row);
out:
	plugin_slots_free(&slots);
	return status;
}

/* --- graphs --- */

bool plugin_is_layout(enum ggml_op op)
{
	return op == GGML_OP_NONE || op == GGML_OP_VIEW || op == GGML_OP_RESHAPE || op == GGML_OP_PERMUTE ||
	       op == GGML_OP_TRANSPOSE;
}

static enum ggml_status compute_without_slots(struct plugin_backend *backend, struct ggml_tensor *node)
{
	struct operation op = {
		.backend = backend,
		.weight = plugin_weight_of(node->src[0]),
		.dst = node,
		.x = node->src[1],
		.ids = node->src[2],
		.top_k = (uint32_t)node->src[2]->ne[0],
		.n_row = (uint32_t)node->src[2]->ne[1],
	};

	return run_rows(&op);
}

/* Node i and what belongs to it. *next: the node behind. */
static enum ggml_status compute_at(struct plugin_backend *backend, struct ggml_cgraph *graph, int i, int *next)
{
	struct ggml_tensor *node = ggml_graph_node(graph, i);
	const struct plugin_weight *weight = node->op == GGML_OP_MUL_MAT_ID ? plugin_weight_of(node->src[0]) : NULL;
	enum ggml_status status;

	*next = i + 1;
	if (plugin_is_layout(node->op) || (weight && node->src[2]->ne[1] == 0))
		return GGML_STATUS_SUCCESS;
	ggml_reset(backend->context);
	if (!weight)
		return compute_node(backend, node); /* what lies between the multiplications */
	status = weight->slots ? plugin_compute_chain(backend, graph, i, next) : compute_without_slots(backend, node);
	if (status != GGML_STATUS_SUCCESS)
		gm_fail(&weight->plugin->err, status == GGML_STATUS_ALLOC_FAILED ? GM_ERR_MEMORY : GM_ERR_IO,
			"experts could not be computed: layer %u", weight->model_layer);
	return status;
}

enum ggml_status plugin_compute(struct plugin_backend *backend, struct ggml_cgraph *graph)
{
	enum ggml_status status = GGML_STATUS_SUCCESS;

	for (int i = 0; i < ggml_graph_n_nodes(graph) && status == GGML_STATUS_SUCCESS;)
		status = compute_at(backend, graph, i, &i);
	return status;
}
