/* Multiplications with experts, over the slots. */
#include "engine/plugin_private.h"

#include <stdlib.h>
#include <time.h>

#define MAX_NODE 8

/* A multiplication: dst [n_out][top_k][n] = the rows' experts (slots) times x [n_in][1 or top_k][n]. */
struct operation {
	struct plugin_backend *backend;
	struct plugin_weight *weight;
	struct ggml_tensor *dst;
	const struct ggml_tensor *x, *ids;
	uint32_t top_k, n_row;
};

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* --- a context's inner backend --- */

int plugin_backend_open(struct plugin_backend *backend, ggml_backend_dev_t inner)
{
	const struct ggml_init_params params = {
		.mem_size = MAX_NODE * ggml_tensor_overhead() + ggml_graph_overhead_custom(MAX_NODE, false),
		.no_alloc = true,
	};

	*backend = (struct plugin_backend){.inner = ggml_backend_dev_init(inner, NULL), .context = ggml_init(params)};
	return backend->inner && backend->context ? GM_OK : GM_ERR_MEMORY;
}

void plugin_backend_close(struct plugin_backend *backend)
{
	if (backend->ids)
		ggml_backend_buffer_free(backend->ids);
	if (backend->context)
		ggml_free(backend->context);
	if (backend->inner)
		ggml_backend_free(backend->inner);
	free(backend->host);
}

/* A node of the scheduler's graph: what it is computed from is there. */
static enum ggml_status compute_node(struct plugin_backend *backend, struct ggml_tensor *node)
{
	struct ggml_cgraph *graph = ggml_new_graph_custom(backend->context, MAX_NODE, false);

	ggml_graph_add_node(graph, node);
	return ggml_backend_graph_compute(backend->inner, graph);
}

/* --- tensors that lie where the scheduler's do --- */

static ggml_backend_buffer_t buffer_of(const struct ggml_tensor *tensor)
{
	return tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
}

/* Rows first ... of a tensor whose third dimension they are, as a tensor of n rows. */
static void place_rows(struct ggml_tensor *rows, const struct ggml_tensor *of, uint32_t first)
{
	for (int d = 0; d < GGML_MAX_DIMS; d++)
		rows->nb[d] = of->nb[d];
	rows->data = (char *)of->data + first * of->nb[2];
	rows->buffer = buffer_of(of);
}

static bool grow_ids(struct plugin_backend *backend, size_t bytes)
{
	ggml_backend_buffer_type_t type = ggml_backend_get_default_buffer_type(backend->inner);

	if (backend->ids_bytes >= bytes)
		return true;
	if (backend->ids)
		ggml_backend_buffer_free(backend->ids);
	backend->ids = ggml_backend_buft_alloc_buffer(type, bytes);
	backend->ids_bytes = backend->ids ? bytes : 0;
	backend->n_schedule = 0;
	return backend->ids != NULL;
}

/* n rows of slot numbers from row `first` on of those in the ids buffer. */
static struct ggml_tensor *ids_tensor(struct plugin_backend *backend, uint32_t top_k, uint32_t first, uint32_t n)
{
	struct ggml_tensor *ids = ggml_new_tensor_2d(backend->context, GGML_TYPE_I32, top_k, n);

	ids->buffer = backend->ids;
	ids->data = (char *)ggml_backend_buffer_get_base(backend->ids) + (size_t)first * top_k * sizeof(int32_t);
	return ids;
}

/* Rows first ... first + n - 1 with experts in slots; their slot numbers stand in the ids buffer from row `ids_row` on. */
static enum ggml_status multiply(const struct operation *op, const struct plugin_slots *slots, uint32_t first, uint32_t n,
				 uint32_t ids_row)
{
	struct plugin_backend *backend = op->backend;
	struct ggml_tensor *x = ggml_new_tensor_3d(backend->context, op->x->type, op->x->ne[0], op->x->ne[1], n);
	struct ggml_tensor *ids = ids_tensor(backend, op->top_k, ids_row, n);
	struct ggml_cgraph *graph = ggml_new_graph_custom(backend->context, MAX_NODE, false);
	struct ggml_tensor *node;

	place_rows(x, op->x, first);
	node = ggml_mul_mat_id(backend->context, slots->tensor, x, ids);
	place_rows(node, op->dst, first);
	ggml_build_forward_expand(graph, node);
	return ggml_backend_graph_compute(backend->inner, graph);
}

/* The slot numbers of a whole schedule, sent once for all of its layer's operations. */
static enum ggml_status send_slots(struct operation *op, const struct gm_schedule *schedule)
{
	struct plugin_backend *backend = op->backend;
	uint64_t n_schedule = op->weight->plugin->n_schedule;

	if (backend->n_schedule == n_schedule)
		return GGML_STATUS_SUCCESS;
	if (!grow_ids(backend, (size_t)schedule->max_row * op->top_k * sizeof(int32_t)))
		return GGML_STATUS_ALLOC_FAILED;
	ggml_backend_tensor_set(ids_tensor(backend, op->top_k, 0, op->n_row), schedule->slot, 0,
				(size_t)op->n_row * op->top_k * sizeof(int32_t));
	ggml_reset(backend->context);
	backend->n_schedule = n_schedule;
	return GGML_STATUS_SUCCESS;
}

/* --- as the schedule says --- */

static int check_schedule(const struct operation *op)
{
	struct gm_plugin *plugin = op->weight->plugin;
	const struct gm_schedule *schedule = plugin->schedule;

	if (plugin->err.code)
		return plugin->err.code;
	if (schedule && plugin->moe_layer[op->weight->model_layer] == schedule->layer && schedule->n_row == op->n_row &&
	    schedule->top_k == op->top_k)
		return GM_OK;
	return gm_fail(&plugin->err, GM_ERR_UNSUPPORTED,
		       "experts of %u rows without a decision: layer %u: the router must be "
		       "observed",
		       op->n_row, op->weight->model_layer);
}

/* An expert's share of one tensor into a slot of it. */
static int copy_now(const struct operation *op, uint32_t expert, const struct plugin_slots *slots, uint32_t slot)
{
	const struct plugin_weight *weight = op->weight;
	size_t bytes = weight->tensor->nb[2];
	struct plugin_expert held;

	GM_TRY(plugin_hold(weight->plugin, weight->model_layer, expert, &held, &weight->plugin->err));
	ggml_backend_tensor_set(slots->tensor, held.from[weight->part], slot * bytes, bytes);
	plugin_let_go(weight->plugin, &held);
	return GM_OK;
}

/* The copies before the rows up to `end`, from copy *c on. */
static int copy_before(const struct operation *op, const struct gm_schedule *schedule, uint32_t *c, uint32_t end)
{
	struct gm_plugin *plugin = op->weight->plugin;
	double start = now_us();
	uint32_t first = *c;
	int status = GM_OK;

	while (*c < schedule->n_copy && schedule->copy[*c].row < end)
		++*c;
	if (plugin->copier.copy)
		status = plugin->copier.copy(plugin->copier.user, schedule, first, *c - first, op->weight->part,
					     &plugin->err);
	for (uint32_t i = first; i < *c && !plugin->copier.copy && status == GM_OK; i++)
		status = copy_now(op, schedule->copy[i].expert, op->weight->slots, schedule->copy[i].slot);
	plugin->stats.n_copy += *c - first;
	plugin->stats.bytes += (*c - first) * op->weight->tensor->nb[2];
	plugin->stats.copy_us += now_us() - start;
	return status;
}

static enum ggml_status run_schedule(struct operation *op)
{
	struct gm_plugin *plugin = op->weight->plugin;
	const struct gm_schedule *schedule = plugin->schedule;
	enum ggml_status status;
	uint32_t c = 0, first = 0;

	if (check_schedule(op) < 0)
		return GGML_STATUS_FAILED;
	status = send_slots(op, schedule);
	for (uint32_t p = 0; p < schedule->n_part && status == GGML_STATUS_SUCCESS; p++) {
		double start;

		if (copy_before(op, schedule, &c, schedule->end[p]) < 0)
			return GGML_STATUS_FAILED;
		start = now_us();
		status = multiply(op, op->weight->slots, first, schedule->end[p] - first, first);
		plugin->stats.compute_us += now_us() - start;
		ggml_reset(op->backend->context);
		first = schedule->end[p];
	}
	plugin->stats.n_op++;
	plugin->stats.n_part += schedule->n_part;
	return status;
}

/* --- without slots --- */

static enum ggml_status read_ids(struct operation *op)
{
	struct plugin_backend *backend = op->backend;
	size_t bytes = (op->n_row - 1) * op->ids->nb[1] + op->top_k * sizeof(int32_t);

	if (backend->host_bytes < bytes) {
		char *grown = realloc(backend->host, bytes);

		if (!grown)
			return GGML_STATUS_ALLOC_FAILED;
		backend->host = grown;
		backend->host_bytes = bytes;
	}
	ggml_backend_tensor_get(op->ids, backend->host, 0, bytes);
	return GGML_STATUS_SUCCESS;
}

static enum ggml_status run_row(struct operation *op, const struct plugin_slots *slots, uint32_t row)
{
	const int32_t *expert = (const int32_t *)(const void *)(op->backend->host + row * op->ids->nb[1]);
	enum ggml_status status;

	for (uint32_t i = 0; i < op->top_k; i++)
		if (expert[i] < 0 || expert[i] >= op->weight->tensor->ne[2] ||
		    copy_now(op, (uint32_t)expert[i], slots, i) < 0)
			return GGML_STATUS_FAILED;
	status = multiply(op, slots, row, 1, 0);
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

	if (plugin_slots_make(&slots, ggml_backend_get_device(backend->inner), op->weight->tensor, op->top_k, NULL) < 0 ||
	    !grow_ids(backend, op->top_k * sizeof(int32_t)))
		goto out;
	ids = ids_tensor(backend, op->top_k, 0, 1);
	for (int32_t slot = 0; slot < (int32_t)op->top_k; slot++)
		ggml_backend_tensor_set(ids, &slot, (size_t)slot * sizeof(slot), sizeof(slot));
	ggml_reset(backend->context);
	backend->n_schedule = 0;
	status = read_ids(op);
	for (uint32_t row = 0; row < op->n_row && status == GGML_STATUS_SUCCESS; row++)
		status = run_row(op, &slots, row);
out:
	plugin_slots_free(&slots);
	return status;
}

enum ggml_status plugin_compute(struct plugin_backend *backend, struct ggml_tensor *node)
{
	struct operation op = {
		.backend = backend,
		.weight = node->op == GGML_OP_MUL_MAT_ID ? plugin_weight_of(node->src[0]) : NULL,
		.dst = node,
	};
	enum ggml_status status;

	ggml_reset(backend->context);
	if (!op.weight)
		return compute_node(backend, node); /* what lies between the multiplications */
	op.x = node->src[1];
	op.ids = node->src[2];
	op.top_k = (uint32_t)op.ids->ne[0];
	op.n_row = (uint32_t)op.ids->ne[1];
	if (op.n_row == 0)
		return GGML_STATUS_SUCCESS;
	status = op.weight->slots ? run_schedule(&op) : run_rows(&op);
	if (status != GGML_STATUS_SUCCESS)
		gm_fail(&op.weight->plugin->err, status == GGML_STATUS_ALLOC_FAILED ? GM_ERR_MEMORY : GM_ERR_IO,
			"experts could not be computed: layer %u", op.weight->model_layer);
	return status;
}
